"""Dell OS9: counters, rate, FEC and MTU of a port from `show interfaces`, neighbours from its LLDP report.

Both as recorded on a Z9100-ON with OS9 9.14(2.7) (github.com/sdn-sense/sense-dellos9-collection,
tests/unit/modules/fixtures). Ports with FEC print a line of it; releases before 9.x print no `wreddrops`.

What OS9 does not tell by its command line, so that nothing is read of it:
- packets of a queue: `show qos statistics` counts none where DSCP is trusted, as the role has it
  (Configuration Guide for the S4820T 9.14.1.0, page 742, "Honoring DSCP Values on Ingress Packets");
- pause frames by priority: DELL-NETWORKING-FPSTATS-MIB has them, by SNMP (Configuration Guide for the
  Z9100-ON 9.14.2.5, "SNMP Support for PFC and Buffer Statistics Tracking");
- ECN marks, and drops of a queue or priority group: no page and no recorded output shows them.
That the class loses nothing is therefore held by what its whole ports drop (profile roce_switches).
"""

import re
from collections.abc import Sequence
from functools import partial

from shakedown.nos import lldp
from shakedown.nos.crosscheck import CABLING, FEC, MTU, SPEED
from shakedown.nos.system import (
    Classes,
    Outputs,
    PortCounters,
    SwitchSystem,
    Tree,
    count,
    output,
    refuse_error_text,
)
from shakedown.records.tool_text import TextSource

INTERFACE = "interface "  # label prefix; the port follows
# What `show interfaces` counts, by the part it stands in. Every number of a line that belongs to a counter is
# added: a frame that WRED dropped may be among the discarded ones too, and either is one too many.
_PORT = {
    "Input": {
        "rx_packets": r"(\S+) packets, \S+ bytes",
        "rx_bytes": r"\S+ packets, (\S+) bytes",
        "rx_drops": r"\S+ CRC, \S+ overrun, (\S+) discarded",
        "rx_errors": r"(\S+) CRC, (\S+) overrun, \S+ discarded",
        "fec_uncorrectable": r"\S+ FEC bit errors, (\S+) FEC uncorrected code words",
    },
    "Output": {
        "tx_packets": r"(\S+) packets, \S+ bytes, \S+ underruns",
        "tx_bytes": r"\S+ packets, (\S+) bytes, \S+ underruns",
        "tx_errors": r"\S+ packets, \S+ bytes, (\S+) underruns",
        "tx_drops": r"\S+ throttles, (\S+) discarded, \S+ collisions(?:, (\S+) wreddrops)?",
    },
}
_FEC_COUNTERS = ("fec_uncorrectable",)
_FOUR_LANES_GBPS = 100.0


def reported(_classes: Classes) -> tuple[str, ...]:
    """Name the counters of every port."""
    return tuple(name for part in _PORT.values() for name in part if name not in _FEC_COUNTERS)


def parse(outputs: Outputs, _classes: Classes) -> PortCounters:
    """Return the counters of every port. Raises BadInput for anything that is not that port's output."""
    ports: PortCounters = {}
    for label in outputs:
        if label.startswith(INTERFACE):
            port = label.removeprefix(INTERFACE)
            text = output(outputs, label)
            _linked(port, text)
            ports[port] = counted(_PORT, port, text)
    return ports


def counted(patterns: dict[str, dict[str, str]], port: str, text: str) -> dict[str, int]:
    """Return what a port counted, on OS9 or OS10. A missing line leaves its counter out, which is not 0."""
    parts = re.split(r"(?m)^[^\S\n]*+(Input|Output) [Ss]tatistics:[^\S\n]*$", text)[1:]
    found: dict[str, int] = {}
    for part, body in zip(parts[::2], parts[1::2], strict=True):
        for name, pattern in patterns[part].items():
            if match := re.search(rf"(?m)^[^\S\n]*+{pattern}[^\S\n]*$", body):
                values = [value for value in match.groups() if value is not None]
                found[name] = sum(count(value, f"{port} {name}") for value in values)
    return found


def _linked(port: str, text: str) -> bool:
    """Return whether a port has its link. Raises BadInput: not `show interfaces` of that port alone."""
    refuse_error_text(text, f"{INTERFACE}{port}")
    heads = re.findall(
        r"(?m)^([A-Za-z]\S{0,30} ?\d\S{0,30}) is (?:up|down), line protocol is (up|down)", text
    )
    if [name.lower() for name, _ in heads] != [port.lower()]:
        TextSource(text).refuse(f"{INTERFACE}{port}: not OS9's `show interfaces` of that port")
    return bool(heads[0][1] == "up")


def links(outputs: Outputs, ports: Sequence[str]) -> dict[str, Tree]:
    """Return MTU, rate and FEC in use of ports that have their link. Raises BadInput: not that output."""
    found: dict[str, Tree] = {}
    for port in ports:
        text = outputs.get(f"{INTERFACE}{port}")
        if text is None or not _linked(port, text):
            continue
        mtu = re.search(r"(?m)^MTU \d{1,6} bytes, IP MTU (\d{1,6}) bytes", text)
        speed = re.search(r"(?m)^LineSpeed (\d{1,7}) Mbit", text)
        gbps = int(speed[1]) / 1000 if speed else None
        found[port] = {"mtu_bytes": int(mtu[1]) if mtu else None, "speed_gbps": gbps, "fec": _fec(text, gbps)}
    return found


def _fec(text: str, gbps: float | None) -> str | None:
    """Return FEC in use; None where the port has none to tell, or does not say which kind it is.

    A port at 100 Gb/s in four lanes has one kind only, Reed-Solomon (IEEE 802.3, clauses 91 and 92), so that
    `configured is default` beside `status is ON` leaves no doubt there.
    """
    kind = re.search(r"(?m)^[^\S\n]*+Forward Error Correction\(FEC\) configured is (.+)$", text)
    status = re.search(r"(?m)^[^\S\n]*+FEC status is (ON|OFF)\b", text)
    if status is None:
        return None
    if status[1] == "OFF":
        return "none"
    return "rs" if gbps == _FOUR_LANES_GBPS or (kind and "RS-FEC" in kind[1]) else None


SYSTEM = SwitchSystem(
    name="os9",
    parse=parse,
    reported=reported,
    may_report=_FEC_COUNTERS,
    tells=frozenset({MTU, SPEED, FEC, CABLING}),
    links=links,
    neighbours=partial(lldp.dell_neighbours, system="OS9"),
    lossless_limit=2,  # a dcb-map takes two
    model=r"(?m)^System Type: *(\S+)",  # show version
    version=r"(?m)^Dell.* Application Software Version: *(\S+)",
    not_done=("PFC watchdog: not rendered for OS9",),
)
