"""A host with one fabric NIC: a sysfs tree in a folder and the tools that read and change it.

Answers are our own, made from the documented outputs and the kernel's and iproute2's sources; the traps of
each driver are played back as the driver plays them. Used in process by the tests, and as the tools
themselves (one link per tool name) when the role is driven through Ansible.
"""

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

STATE = "fake-state.json"
LOG = "fake-log.jsonl"
EINVAL, ENOENT, EEXIST = "Invalid argument", "No such file or directory", "File exists"


# As a tool it starts hundreds of times: no dataclasses, whose module takes a third of a start.
class Answer:
    """What a tool prints and its exit status."""

    def __init__(self, out: str = "", err: str = "", status: int = 0) -> None:
        self.out = out
        self.err = err
        self.status = status


def word(value: int) -> str:
    """Write a parameter as mlxconfig does: 255, True(1)."""
    return {0: "False(0)", 1: "True(1)"}.get(value, str(value))


class Fake:
    """The state behind the tools."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state
        self.log: list[list[str]] = []

    def run(self, argv: list[str]) -> Answer:
        """Answer one call; changes are logged, reads are not."""
        tool = Path(argv[0]).name
        before = copy.deepcopy(self.state)
        answer = getattr(self, f"_{tool}")(argv[1:])
        verbs = ("set", "--setoption", "-setoption", "add", "del", "delete", "-A", "-G", "-C", "enable")
        verbs += ("disable",)
        if tool == "modprobe" or any(w in argv for w in verbs) or (tool == "setpci" and "=" in argv[-1]):
            self.log.append(argv)
        if answer.status:
            self.state = before
        return answer

    # ip, rdma, ibv_devinfo, modprobe, mlxconfig

    def _ip(self, args: list[str]) -> Answer:
        if "addr" in args:
            have = [a.partition("/") for a in (self.state["ipv4"], *self.state.get("ipv4_more", ()))]
            shown = [{"local": local, "prefixlen": int(prefix)} for local, _, prefix in have]
            return Answer(json.dumps([{"addr_info": shown}]))
        assert args[:2] == ["link", "set"]
        assert args[4] == "mtu"
        self.write(f"/sys/class/net/{args[3]}/mtu", args[5])
        return Answer()

    def _rdma(self, args: list[str]) -> Answer:
        links = self.state["rdma"]
        if args[-2:] == ["link", "show"]:
            shown = [{"ifname": name, "port": 1, "netdev": netdev} for name, netdev in links.items()]
            return Answer(json.dumps(shown))
        tree = self.state["rdma_tree"]
        if args[:2] == ["link", "add"]:
            links[args[2]] = args[6]
            self.write_tree(tree)
        else:
            assert args[:2] == ["link", "delete"]
            del links[args[2]]
            for path in tree:
                (self.root / path.lstrip("/")).unlink()
        return Answer()

    def _ibv_devinfo(self, args: list[str]) -> Answer:
        mtus = f"\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t{self.state['active_mtu']} (5)\n"
        return Answer(f"hca_id:\t{args[1]}\n{mtus}")

    def _modprobe(self, args: list[str]) -> Answer:
        folder = self.root / "sys/module" / args[-1]
        if args[0] == "-r":
            (folder / "version").unlink(missing_ok=True)
            folder.rmdir()
        else:
            folder.mkdir(parents=True, exist_ok=True)
            if version := self.state.get("modules_on_disk", {}).get(args[-1]):
                self.write(f"/sys/module/{args[-1]}/version", version)
        return Answer()

    def _modinfo(self, args: list[str]) -> Answer:
        version = self.state.get("modules_on_disk", {}).get(args[-1])
        if version is None:
            return Answer(err=f"modinfo: ERROR: Module {args[-1]} not found.\n", status=1)
        return Answer(f"{version}\n")

    def _mlxconfig(self, args: list[str]) -> Answer:
        firmware, in_use = self.state["firmware"], self.state.setdefault("firmware_in_use", {})
        if args[:2] == ["-y", "-d"]:
            assert args[3] == "set"
            name, _, value = args[4].partition("=")
            in_use.setdefault(name, firmware[name])
            firmware[name] = int(value)
            return Answer("Applying... Done!\n-I- Please reboot machine to load new configurations.\n")
        if args[2:4] == ["-e", "q"]:
            head = "Configurations:              Default             Current             Next Boot"
            if unknown := [name for name in args[4:] if name not in firmware]:
                return Answer(f"-E- The Device doesn't support {unknown[0]} parameter\n", status=3)
            values = {name: (0, in_use.get(name, firmware[name]), firmware[name]) for name in args[4:]}
            lines = [
                f"*        {name:<28}" + "".join(f"{word(value):<20}" for value in row)
                for name, row in values.items()
            ]
            return Answer("\n".join([head, *lines, ""]))
        lines = [f"         {name:<44}{self.state['firmware'][name]}" for name in args[3:]]
        head = "Configurations:                                      Next Boot"
        return Answer("\n".join([head, *lines, ""]))

    def _niccli(self, args: list[str]) -> Answer:
        dash = self.state.get("niccli_dash", "--")
        if args[0] != f"{dash}dev" or not args[3].startswith(f"{dash}{args[3].lstrip('-')}"):
            return Answer(err="Error: invalid option\n", status=1)
        verb, name = args[3].lstrip("-"), args[4]
        if verb == "getoption":
            return Answer(f"\n {name} = {('Disabled', 'Enabled')[self.state['nvm'][name]]}\n")
        assert (verb, args[5]) == ("setoption", f"{dash}value")
        self.state["nvm"][name] = int(args[6])
        return Answer(f"{name} is set successfully\nPlease reboot the system to apply the configuration\n")

    def _setpci(self, args: list[str]) -> Answer:
        bdf, (name, _, value) = args[1], args[2].partition("=")
        registers = self.state["registers"]
        if f"{bdf} {name}" not in registers:
            return Answer(err=f"setpci: {bdf}: Capability 0010 not found.\n", status=1)
        if not value:
            return Answer(f"{registers[f'{bdf} {name}']}\n")
        word, _, mask = value.partition(":")
        bits = int(mask or "ffff", 16)
        now = int(registers[f"{bdf} {name}"], 16)
        registers[f"{bdf} {name}"] = f"{now & ~bits | int(word, 16) & bits:04x}"
        return Answer()

    def _systemctl(self, args: list[str]) -> Answer:
        services = self.state.get("services", {})
        if args[0] in ("is-enabled", "is-active"):
            known = services.get(args[1])
            word = (
                known[args[0] == "is-active"] if known else ("not-found", "inactive")[args[0] == "is-active"]
            )
            return Answer(f"{word}\n", status=0 if word in ("enabled", "active") else 1)
        services[args[-1]] = ["enabled", "active"] if "enable" in args else ["disabled", "inactive"]
        return Answer()

    # ethtool

    def _ethtool(self, args: list[str]) -> Answer:
        option, words = args[0], args[2:]
        if option in ("-c", "-C"):
            return self._coalesce(option, args[1], words)
        part = {"-a": "pause", "-A": "pause", "-g": "rings", "-G": "rings", "--show-fec": "fec"}[option]
        if self.state.get(part) is None:
            return Answer(err="netlink error: Operation not supported\n", status=1)
        values = self.state[part]
        if option == "--show-fec":
            return Answer(
                f"FEC parameters for {args[1]}:\nSupported/Configured FEC encodings: Auto\n"
                f"Active FEC encoding: {values}\n"
            )
        if option == "-a":
            text = "".join(f"{k.upper()}:\t\t{v}\n" for k, v in values.items())
            return Answer(f"Pause parameters for {args[1]}:\nAutonegotiate:\toff\n{text}\n")
        if option == "-g":
            block = "RX:\t\t{rx}\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t{tx}\n"
            top = f"Ring parameters for {args[1]}:\nPre-set maximums:\n"
            most, now = (block.format(**values[key]) for key in ("max", "now"))
            return Answer(f"{top}{most}Current hardware settings:\n{now}")
        changed = dict(zip(words[::2], words[1::2], strict=True))
        (values if part == "pause" else values["now"]).update(changed)
        return Answer()

    def _coalesce(self, option: str, netdev: str, words: list[str]) -> Answer:
        values = self.state.get("coalesce")
        if values is None:
            return Answer(err="netlink error: Operation not supported\n", status=1)
        values.update(zip(words[::2], words[1::2], strict=True))
        adaptive, usecs = values["adaptive-rx"], values["rx-usecs"]
        shown = f"Adaptive RX: {adaptive}  TX: off\nstats-block-usecs:\tn/a\n\nrx-usecs:\t{usecs}\n"
        return Answer(f"Coalesce parameters for {netdev}:\n{shown}" if option == "-c" else "")

    # dcb: the kernel's and iproute2's rules

    def _dcb(self, args: list[str]) -> Answer:
        args = [a for a in args if a != "-j"]
        if self.state.get("dcb") is None:
            return Answer(err="Attribute read: Operation not supported\n", status=1)
        what, verb, words = args[0], args[1], args[4:]
        # Both break a live port; see host_settings/dcb.py.
        assert verb not in ("flush", "replace"), args
        if verb == "show":
            return Answer(json.dumps(getattr(self, f"_show_{what}")()))
        error = getattr(self, f"_change_{what}")(verb, words)
        return Answer(err=f"Attribute write: {error}\n", status=1) if error else Answer()

    @property
    def _driver(self) -> str:
        return str(self.state["driver"])

    def _refused(self) -> bool:
        dcbx = self.state["dcb"]["dcbx"]
        return self._driver == "bnxt_en" and not ("host" in dcbx and "ieee" in dcbx)

    def _show_dcbx(self) -> dict[str, bool]:
        return dict.fromkeys(self.state["dcb"]["dcbx"], True)

    def _change_dcbx(self, _verb: str, words: list[str]) -> str | None:
        if self.state.get("firmware_lldp"):
            return EINVAL
        self.state["dcb"]["dcbx"] = words
        return None

    def _show_ets(self) -> dict[str, Any]:
        ets = copy.deepcopy(self.state["dcb"]["ets"])
        if self._driver == "mlx5_core":  # mlx5e_dcbnl_ieee_getets: what is not shared has all
            shares = zip(ets["tc_tsa"], ets["tc_bw"], strict=True)
            ets["tc_bw"] = [bw if tsa == "ets" else 100 for tsa, bw in shares]
        return {"willing": False, "cbs": False, **ets, "reco_tc_bw": [0] * 8}

    def _change_ets(self, _verb: str, words: list[str]) -> str | None:
        ets = copy.deepcopy(self._show_ets())
        key = ""
        for word in words:
            if ":" not in word:
                key = word.replace("-", "_")
                continue
            index, _, value = word.partition(":")
            targets = range(8) if index == "all" else [int(index)]
            for i in targets:
                ets[key][i] = value if key == "tc_tsa" else int(value)
        # dcb_ets_validate_bw of iproute2
        total, shared = sum(ets["tc_bw"]), "ets" in ets["tc_tsa"]
        if total != 100 and (shared or total):
            return f"Bandwidth percentages in tc-bw sum to {total}%"
        if self._refused() or (self._driver == "bnxt_en" and max(ets["prio_tc"]) > ets["ets_cap"]):
            return EINVAL
        self.state["dcb"]["ets"] = {k: ets[k] for k in ("ets_cap", "prio_tc", "tc_tsa", "tc_bw")}
        self.state["ets_set"] = True
        return None

    def _show_pfc(self) -> dict[str, Any]:
        pfc = self.state["dcb"]["pfc"]
        on = [p in pfc["priorities"] for p in range(8)]
        return {"pfc_cap": 8, "macsec_bypass": False, "delay": pfc["delay"], "prio_pfc": on}

    def _change_pfc(self, _verb: str, words: list[str]) -> str | None:
        if self._refused() or (self._driver == "bnxt_en" and not self.state.get("ets_set")):
            return EINVAL
        pfc = self.state["dcb"]["pfc"]
        old = list(pfc["priorities"])
        while words:
            word = words.pop(0)
            if word == "delay":
                pfc["delay"] = int(words.pop(0))
            elif word != "prio-pfc":
                index, _, value = word.partition(":")
                touched = set(range(8)) if index == "all" else {int(index)}
                kept = set(pfc["priorities"]) - touched
                pfc["priorities"] = sorted(kept | touched if value == "on" else kept)
        if self._driver == "mlx5_core" and pfc["priorities"] != old:
            self.state["link_toggles"] = self.state.get("link_toggles", 0) + 1
        return None

    def _show_app(self) -> dict[str, list[list[Any]]]:
        app = self.state["dcb"]["app"]
        # The space is iproute2 6.15's own.
        return {
            key: sorted([int(k), v, " "] for k, v in table.items()) for key, table in app.items() if table
        }

    def _change_app(self, verb: str, words: list[str]) -> str | None:
        if self._refused():
            return EINVAL
        selector = words[0].replace("-", "_")
        if self._driver == "mlx5_core" and selector != "dscp_prio":
            return EINVAL
        table = self.state["dcb"]["app"].setdefault(selector, {})
        hardware = self.state.setdefault("hardware", {})
        for word in words[1:]:
            key, _, priority = word.partition(":")
            if verb == "add":
                if table.get(key) == int(priority):
                    return EEXIST
                if key in table and self._driver != "mlx5_core":
                    return "two priorities for one key"  # legal in the kernel, never meant here
                table[key] = hardware[key] = int(priority)
            else:
                if table.pop(key, None) != int(priority):
                    return ENOENT
                hardware.pop(key, None)
        if self._driver == "mlx5_core":
            self.state["trust"] = "dscp" if table else "pcp"
        return None

    # the tree

    root: Path = Path("/nonexistent")

    def write(self, path: str, text: str) -> None:
        """Make a file of the tree."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def write_tree(self, tree: dict[str, Any]) -> None:
        """Files by path; a text that begins with -> is a symbolic link."""
        for path, text in tree.items():
            if str(text).startswith("-> "):
                link = self.root / path.lstrip("/")
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(str(text)[3:])
            else:
                self.write(path, text)


def load(root: Path) -> Fake:
    """The fake behind a tree."""
    fake = Fake(json.loads((root / STATE).read_text()))
    fake.root = root
    return fake


def save(fake: Fake) -> None:
    """Keep state and log for the next call."""
    (fake.root / STATE).write_text(json.dumps(fake.state))
    with (fake.root / LOG).open("a") as log:
        log.writelines(json.dumps(argv) + "\n" for argv in fake.log)


def make(root: Path, description: Path, last_octet: int = 7) -> Fake:
    """A tree and a state from a NIC's description, which has 10.20.3.7 as address and in its GIDs."""
    import yaml  # not needed when this is a tool, which should start fast

    text = description.read_text().replace("10.20.3.7/", f"10.20.3.{last_octet}/")
    data = yaml.safe_load(text.replace("0a14:0307", f"0a14:03{last_octet:02x}"))
    app = (data["state"].get("dcb") or {}).get("app", {})
    if app.get("dscp_prio") == "dscp >> 3":  # the firmware's map, spelled out
        app["dscp_prio"] = {str(dscp): dscp >> 3 for dscp in range(64)}
    fake = Fake(data["state"])
    fake.root = root
    root.mkdir(parents=True, exist_ok=True)
    fake.write_tree(data["tree"])
    return fake


def main() -> int:
    """One call of a tool, as a program."""
    fake = load(Path(os.environ["HOST_SETTINGS_ROOT"]))
    argv = [Path(sys.argv[0]).name, *sys.argv[1:]]
    answer = fake.run(argv)
    save(fake)
    sys.stdout.write(answer.out)
    sys.stderr.write(answer.err)
    return answer.status


if __name__ == "__main__":
    sys.exit(main())
