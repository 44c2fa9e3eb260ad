"""How a switch prints its configuration: its own order, without its defaults, lists as ranges."""

import re

Tree = dict[str, dict]  # a line and the lines under it

# What a switch does not show, because it is its default: EOS's DSCP map (EOS manual, Quality of Service,
# "default DSCP to traffic class map"), and the default MTU of EOS and NX-OS. `all` shows it.
HIDDEN = {
    "eos": r"qos map dscp ((2[4-9]|3[01]) to traffic-class 3|(4[89]|5[0-5]) to traffic-class 6)|no priority",
    "nxos": r"mtu 1500",
}
DEFAULTS = {
    "eos": "qos map dscp 24 25 26 27 28 29 30 31 to traffic-class 3\nqos map dscp 48 49 50 51 52 53 54 55 to "
    "traffic-class 6\n",
    "nxos": "feature lldp\n",
}
# The first lines, which change from one reading to the next.
HEADS = {
    "eos": "! Command: show running-config\n! device: leaf1 (DCS-7060X6, EOS-4.34.0F)\n!\n",
    "nxos": "\n!Command: show running-config\n!Running configuration last done at: Mon Nov 23 12:00 2026\n",
    "os9": "Current Configuration ...\n! Version 9.14(2.11)\n!\n",
    "os10": "! Version 10.5.6.0\n! Last configuration change at Nov 23 12:00:00 2026\n!\n",
}


def printed(nos: str, tree: Tree, *, hidden: bool = False) -> str:
    """A configuration as the real system prints it: sections in its own order, without its defaults, lists as
    ranges (OS10: `queue 0 qos-group 0-2,4-5,7`, Dell's OS10 user guide 10.5.6), decimals short.
    """
    order = dict(sorted(tree.items())) if nos in ("eos", "nxos") else tree
    shown = text(order)
    shown = re.sub(r"(\d\.\d*?[1-9])0+\b", r"\1", shown)
    if nos == "os10":
        shown = re.sub(r"(?<=qos-group )[\d,]+", lambda m: as_ranges(m[0]), shown)
    if hidden:
        return HEADS[nos] + DEFAULTS[nos] + shown
    lines = [line for line in shown.splitlines() if not re.fullmatch(HIDDEN.get(nos, "$^"), line.strip())]
    return HEADS[nos] + "\n".join(lines) + "\n"


def as_ranges(numbers: str) -> str:
    """`0,1,2,4` as `0-2,4`."""
    runs: list[list[int]] = []
    for number in map(int, numbers.split(",")):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def text(tree: Tree, depth: int = 0) -> str:
    """A configuration as it is shown."""
    out = ""
    for line, below in tree.items():
        out += " " * (3 * depth) + line + "\n" + text(below, depth + 1)
        out += "!\n" if depth == 0 and below else ""
    return out
