"""What a switch told, and how its uplinks shared the traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from shakedown.nos.registry import counters_of, known
from shakedown.nos.system import COUNTERS, LOST, Classes, Due, PortCounters, ratios
from shakedown.records.base import Document, Name, PortName, Record, Stage
from shakedown.records.reading import BadInput, loads, read_evidence, refusal
from shakedown.records.results import CounterReading, unanswered, went_back

# An uplink that is down costs capacity and no packet: routing goes round it, and no counter of errors moves.
# It shows by what it did not carry.

# Of an uplink: 1 if it carried nothing one way or the other while the leaf's others did, else 0.
IDLE = "idle_uplink"
# Of an uplink: what it sent, and received, of what it could, over the time between the two readings.
SENT, RECEIVED = "tx_utilisation_percent", "rx_utilisation_percent"
# Of a leaf: the busiest uplink less the quietest, over their mean, by what they sent for their rate.
IMBALANCE = "uplink_imbalance_percent"
OF_UPLINK, OF_LEAF = (IDLE, SENT, RECEIVED), (IMBALANCE,)
UPLINK_COUNTERS = (*OF_UPLINK, *OF_LEAF)
NEEDED = ("tx_bytes", "rx_bytes")  # what they are made from
_IDLE_SHARE = 0.01  # less than this part of its siblings' mean is routing protocols' chatter
# Below this mean rate the leaf's uplinks carried no test at all: nothing can be said of any. 10^9 bit/s.
_QUIET_GBPS = 1e-4


@dataclass(frozen=True)
class Carried:
    """What one uplink carried between two readings; None: it was not read twice.

    Attributes:
        speed_gbps: its rate, 10^9 bit/s.
        tx_bytes, rx_bytes: as the leaf counts them.
    """

    speed_gbps: float
    tx_bytes: int | None
    rx_bytes: int | None

    def share(self, way: str, seconds: float) -> float | None:
        """Return what it sent (`tx`) or received (`rx`) of what it could."""
        moved = self.tx_bytes if way == "tx" else self.rx_bytes
        return None if moved is None or seconds <= 0 else 8e-9 * moved / seconds / self.speed_gbps


def spread(
    uplinks: Mapping[str, Carried],  # by port
    seconds: float,  # between the two readings
) -> tuple[dict[str, dict[str, int | None]], int | None]:
    """Return by uplink its counters (OF_UPLINK), and the leaf's imbalance; None: not known."""
    found: dict[str, dict[str, int | None]] = {}
    idle: dict[str, list[bool | None]] = {port: [] for port in uplinks}
    for way in ("tx", "rx"):
        shares = {port: one.share(way, seconds) for port, one in uplinks.items()}
        known = [share for share in shares.values() if share is not None]
        mean = sum(known) / len(known) if known else 0.0
        speed = max((one.speed_gbps for one in uplinks.values()), default=0.0)
        for port, share in shares.items():
            # One uplink alone has no sibling that shows what it should have carried.
            quiet = len(known) < 2 or mean * speed < _QUIET_GBPS
            idle[port].append(None if share is None else not quiet and share < _IDLE_SHARE * mean)
            name = SENT if way == "tx" else RECEIVED
            found.setdefault(port, {})[name] = None if share is None else round(100 * share)
    for port, ways in idle.items():
        found[port][IDLE] = None if None in ways else int(any(ways))
    return found, _imbalance([one.share("tx", seconds) for one in uplinks.values()])


def _imbalance(shares: Sequence[float | None]) -> int | None:
    known = [share for share in shares if share is not None]
    if len(known) < len(shares) or len(known) < 2 or not sum(known):
        return None if len(known) < len(shares) else 0
    return ceil(100 * (max(known) - min(known)) * len(known) / sum(known))


# The role `switch_counters` saves each reading as `SWITCH.before.json` and `SWITCH.after.json`; every port is
# keyed to the host NIC at the other end by the cabling that the reading carries.

RecordT = TypeVar("RecordT", bound=Record)
WHOLE_SWITCH = "switch"  # `port` of a counter that is of a switch as a whole
# A port's traffic never decreases: where it did, its drops were set back with it.
_TRAFFIC = tuple(name for name, due in COUNTERS.items() if due is Due.TRAFFIC)


class CableReading(Record):
    """One cable of the inventory: a port of the switch, and the NIC or port of a switch at its end."""

    port: PortName
    host: Name  # host, or switch where `role` is not host
    netdev: Name | PortName
    rail: Name | None = None  # of a host's NIC
    role: Literal["host", "uplink", "spine"] = "host"
    speed_gbps: float | None = Field(default=None, gt=0)  # of a link between switches
    cable_m: int | None = None


class SwitchOutput(Record):
    """What one command printed."""

    command: str
    stdout: str


class SwitchReading(Document):
    """One reading of one switch (`SWITCH.before.json`, `SWITCH.after.json`)."""

    schema_: Literal[1] = Field(alias="schema")
    switch: Name
    nos: Name
    when: Literal["before", "after"]
    taken: str  # RFC 3339, UTC
    classes: Classes
    cabling: tuple[CableReading, ...] = Field(min_length=1)
    outputs: dict[str, SwitchOutput]

    @model_validator(mode="after")
    def _one_cable_a_port(self) -> SwitchReading:
        ports = [cable.port for cable in self.cabling]
        if len(set(ports)) != len(ports):
            raise ValueError("a port is cabled twice")
        return self


def load_reading(path: Path) -> SwitchReading:
    """Read one raw file. Raises BadInput if it is not a whole reading."""
    return load_record(path, SwitchReading)


def load_record(path: Path, kind: type[RecordT]) -> RecordT:
    """Read a file that the switch roles wrote. Raises BadInput if it is none."""
    try:
        return kind.model_validate(loads(read_evidence(path)))
    except ValidationError as error:
        raise refusal(error, kind, file=path, fix="read the switch again") from None
    except ValueError as error:
        raise BadInput(f"not JSON: {error}", fix="read the switch again", file=path) from None


def readings(
    before: SwitchReading,
    after: SwitchReading,
    *,
    run: str,
    stage: Stage,
    test: str,
    job: str | None = None,
    raw: str | None = None,
) -> list[CounterReading]:
    """Return one line for every counter of every cabled port, in the order of the cabling.

    A counter that the system reports but one reading lacks has None there: it was not read, so it cannot
    pass. `raw` is the path of the later file, relative to the run. Raises BadInput: the two are not before
    and after of the same switch and cabling, or a raw output is bad.
    """
    if (before.when, after.when) != ("before", "after") or after.taken < before.taken:
        raise BadInput(f"{before.switch}: the readings are not one before and one after it", file=raw)
    for what in ("switch", "nos", "classes", "cabling"):
        if getattr(before, what) != getattr(after, what):
            raise BadInput(f"{before.switch}: {what} changed between the readings", file=raw)
    parse, reader = counters_of(after.nos, raw), known(after.nos)
    found = []
    for one in (before, after):
        told = parse({label: o.stdout for label, o in one.outputs.items()}, one.classes)
        found.append({at: {c: n for c, n in own.items() if not unanswered(n)} for at, own in told.items()})
    common = {"run": run, "stage": stage, "test": test, "device": after.switch, "job": job, "raw": raw}
    lines = []

    def add(counter: str, first: int | None, last: int | None, **where: object) -> None:
        fields = {**common, **where, "kind": "switch_port", "counter": counter}
        lines.append(_line({**fields, "before": first, "after": last}, raw))

    def add_known(counter: str, value: int | None, **where: object) -> None:
        add(counter, None if value is None else 0, value, **where)

    for cable in after.cabling:
        first, last = (ports.get(cable.port, {}) for ports in found)
        anew = went_back(first, last, _TRAFFIC)
        always = reader.reported(after.classes)
        extra = [name for name in COUNTERS if (name in first or name in last) and name not in always]
        here = {"port": port_name(cable.port), "rail": cable.rail, "peer": f"{cable.host}/{cable.netdev}"}
        for name in (*always, *extra):
            add(name, first.get(name), last.get(name), began_anew=anew, **here)
        for name, (events, packets) in ratios({*always, *extra}, after.classes).items():
            add_known(
                name, _per_million(*(_difference(first, last, key) for key in (events, packets))), **here
            )
    # How the traffic of a leaf spread over its uplinks (uplinks.py).
    cables = {cable.port: cable for cable in after.cabling if cable.role == "uplink" and cable.speed_gbps}
    if cables:
        carried = {
            port: Carried(
                cable.speed_gbps or 0.0,
                *(_difference(found[0].get(port, {}), found[1].get(port, {}), name) for name in NEEDED),
            )
            for port, cable in cables.items()
        }
        shares, imbalance = spread(carried, _seconds(before.taken, after.taken))
        for port, counters in shares.items():
            for name, value in counters.items():
                peer = f"{cables[port].host}/{cables[port].netdev}"
                add_known(name, value, port=port_name(port), peer=peer)
        add_known(IMBALANCE, imbalance, port=WHOLE_SWITCH)
    if reader.forwarded:
        for rail, ports in forwarding_groups(after.cabling).items():
            lost = _lost(found[0], found[1], ports, *reader.forwarded)
            add_known(LOST, lost, port=rail or WHOLE_SWITCH, rail=rail)
    return lines


def _seconds(first: str, last: str) -> float:
    """Return the time between two readings; 0 where one has no time."""
    try:
        return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def forwarding_groups(cabling: Iterable[CableReading]) -> dict[str | None, list[str]]:
    """Return the ports among which what enters must leave, by rail.

    Without links a rail's traffic stays on the rail's ports. What comes or goes by a link may be of any
    rail, so then all ports of the switch are one group (None).
    """
    cables = list(cabling)
    if any(cable.role != "host" for cable in cables):
        return {None: [cable.port for cable in cables]}
    rails = sorted({cable.rail for cable in cables if cable.rail})
    return {rail: [cable.port for cable in cables if cable.rail == rail] for rail in rails}


def _line(fields: dict[str, object], raw: str | None) -> CounterReading:
    """Return one line. Raises BadInput for a number that no counter can hold."""
    try:
        return CounterReading.model_validate(fields)
    except ValidationError as error:
        about = f"{fields['device']} {fields['port']} {fields['counter']}"[:200]
        raise refusal(error, CounterReading, file=raw, about=about, fix="read the switch again") from None


def _lost(first: PortCounters, last: PortCounters, ports: list[str], entered: str, left: str) -> int | None:
    """Return how many packets entered by these ports and left by none of them; None if unknown.

    More may leave than enter: a switch floods what it has not learnt. That never counts as a loss.
    """
    total = 0
    for port in ports:
        for name, sign in ((entered, 1), (left, -1)):
            moved = _difference(first.get(port, {}), last.get(port, {}), name)
            if moved is None:
                return None
            total += sign * moved
    return max(total, 0)


def _difference(first: dict[str, int], last: dict[str, int], name: str) -> int | None:
    """Return how far a counter went; None if it was not read twice, or was reset."""
    was, now = first.get(name), last.get(name)
    return None if was is None or now is None or now < was else now - was


def _per_million(events: int | None, packets: int | None) -> int | None:
    """Return events for every million packets, rounded up; None if one of the two is not known."""
    if events is None or packets is None:
        return None
    return -(-events * 1_000_000 // packets) if packets else events and 1_000_000


def port_name(port: str) -> str:
    """Return a port's name as records carry it: `Ethernet1/1` is `Ethernet1:1`, a space is dropped."""
    return port.replace("/", ":").replace(" ", "")
