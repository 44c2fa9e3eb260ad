"""What a switch system can be asked, and the counters it gives."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from shakedown.records.base import COUNTER_END, Record
from shakedown.records.reading import BadInput
from shakedown.records.tool_text import TextSource, quote

# A parser takes the raw outputs of the counter commands, keyed by the label under which the role
# `switch_counters` saved them, and returns `{port: {counter: value}}`. A counter that the switch does not
# report is left out, never read as 0. Values run on from some point in the past; only differences count.

_DIGITS = re.compile(r"\d{1,20}|\d{1,3}(,\d{3}){1,6}")

# How the command lines say that a command failed: NX-OS and EOS `% Invalid command`, OS9 and OS10 `% Error:`,
# OS10 `Syntax error:`, a shell `command not found`. EOS's JSON has an object `errors`.
_FAILED = re.compile(
    r"(?im)^[^\S\n]*+"
    r"(% ?(invalid|error|incomplete|ambiguous|unrecognized|illegal|failed|permission|authorization)"
    r"|(syntax )?error:|.*returned error code|.*command not found)|\A\s*\{\s*\"errors\"\s*:"
)

PortCounters = dict[str, dict[str, int]]
Outputs = Mapping[str, str]
Eight = Annotated[int, Field(ge=0, le=7)]


class Classes(Record):
    """Which numbers of the switch carry RoCE and CNPs, from the fabric intent."""

    priority: Eight
    traffic_class: Eight
    queue: Eight
    cnp_queue: Eight


class Due(StrEnum):
    """What a healthy test makes of a counter's difference."""

    ZERO = "zero"  # anything else is a fault
    BOUNDED = "bounded"  # congestion control at work: some is right, much is not
    TRAFFIC = "traffic"  # follows the load
    GAUGE = "gauge"  # a high-water mark: not a sum, so its difference means nothing


# The one counter that is of a rail: what entered a switch in the RoCE class and never left it.
LOST = "roce_lost_packets"
# The canonical names. "roce" is the intent's RoCE class, "cnp" the class of its congestion notifications.
COUNTERS: dict[str, Due] = {
    "rx_packets": Due.TRAFFIC,
    "rx_bytes": Due.TRAFFIC,
    "tx_packets": Due.TRAFFIC,
    "tx_bytes": Due.TRAFFIC,
    "rx_drops": Due.ZERO,
    "tx_drops": Due.ZERO,
    "rx_errors": Due.ZERO,
    "tx_errors": Due.ZERO,
    "link_flaps": Due.ZERO,
    "roce_rx_packets": Due.TRAFFIC,
    "roce_rx_bytes": Due.TRAFFIC,
    "roce_tx_packets": Due.TRAFFIC,
    "roce_tx_bytes": Due.TRAFFIC,
    "roce_queue_drops": Due.ZERO,  # egress queue
    "roce_ingress_drops": Due.ZERO,  # ingress priority group: the headroom was too small
    "roce_queue_watermark_bytes": Due.GAUGE,
    "roce_headroom_watermark_bytes": Due.GAUGE,
    # RoCE (UDP port 4791) that arrived with a DSCP of no class: the host's marking is wrong.
    "roce_misclassified_rx_packets": Due.ZERO,
    LOST: Due.ZERO,
    "cnp_rx_packets": Due.BOUNDED,
    "cnp_tx_packets": Due.BOUNDED,
    "cnp_queue_drops": Due.ZERO,
    "ecn_marked": Due.BOUNDED,
    # On the lossless priority bounded; on any other, pause frames mean that the two ends disagree.
    **{f"pfc_{way}_prio{priority}": Due.BOUNDED for way in ("rx", "tx") for priority in range(8)},
    # Where a system has them for all priorities together only.
    "pfc_rx_frames": Due.BOUNDED,
    "pfc_tx_frames": Due.BOUNDED,
    "watchdog_events": Due.ZERO,
    "watchdog_drops": Due.ZERO,
    # For every million RoCE packets that the port sent (marks, pauses received) or received (pauses sent).
    "ecn_marked_ppm": Due.BOUNDED,
    "pfc_rx_ppm": Due.BOUNDED,
    "pfc_tx_ppm": Due.BOUNDED,
    # Of links between switches (uplinks.py).
    "idle_uplink": Due.ZERO,
    "tx_utilisation_percent": Due.GAUGE,
    "rx_utilisation_percent": Due.GAUGE,
    "uplink_imbalance_percent": Due.BOUNDED,
    # Frames that forward error correction could not mend, and symbols that it had to.
    "fec_uncorrectable": Due.ZERO,
    "fec_symbol_errors": Due.BOUNDED,
}


def ratios(counters: Collection[str], classes: Classes) -> dict[str, tuple[str, str]]:
    """Return how each ratio is made from the counters that there are: name to (events, packets).

    Where a system does not count the packets of the RoCE class, those of the port stand in for them.
    """
    found = {}
    for name, events, way in (
        ("ecn_marked_ppm", ("ecn_marked",), "tx"),
        ("pfc_rx_ppm", (f"pfc_rx_prio{classes.priority}", "pfc_rx_frames"), "tx"),
        ("pfc_tx_ppm", (f"pfc_tx_prio{classes.priority}", "pfc_tx_frames"), "rx"),
    ):
        top = next((event for event in events if event in counters), None)
        packets = (f"roce_{way}_packets", f"{way}_packets")
        bottom = next((packet for packet in packets if packet in counters), None)
        if top and bottom:
            found[name] = (top, bottom)
    return found


def output(outputs: Outputs, label: str) -> str:
    """Return one raw output. Raises BadInput where the reading lacks it, or where it is an error message."""
    if label not in outputs:
        raise BadInput(f"the reading has no output {label!r}", fix="read the switch again")
    refuse_error_text(outputs[label], label)
    return outputs[label]


def refuse_error_text(text: str, label: str) -> None:
    """Raise BadInput if what a command printed is an error message, which is never an empty table."""
    failed = _FAILED.search(text)
    if failed:
        line = text[failed.start() :].strip().splitlines()[0]
        raise BadInput(
            f"{label}: the switch refused the command: {quote(line)}",
            fix="read the switch again, with a user and a release that have the command",
        )


_CLASSES = re.compile(r"\A[A-Za-z ]{0,20}+(\d{1,3}(?:-\d{1,3})?(?:[, ]\d{1,3}(?:-\d{1,3})?)*)\Z")


def numbers(text: str) -> frozenset[int]:
    """Return the numbers of `TC3`, `0-5`, `24-26,48` or `24 25 26`; none of any other text."""
    match = _CLASSES.match(text.strip())
    ends = [part.partition("-") for part in re.split("[, ]", match[1])] if match else []
    return frozenset(n for first, _, last in ends for n in range(int(first), int(last or first) + 1))


def of_class(told: Mapping[str, Any], number: int) -> list[Any]:
    """Return what is told of a class or queue, or of groups that hold it: `TC3`, `3`, `TC0-5` or `0,3-5`.

    What a group counts is of any of its classes: it cannot be told apart, and none of it is taken for good.
    """
    return [value for name, value in told.items() if number in numbers(name)]


def count(value: object, what: str) -> int:
    """Return a counter's value: a whole number of 64 bits, or its digits with or without commas.

    Raises BadInput: anything else. It is never read as 0.
    """
    if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
        value = int(value.replace(",", ""))
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < COUNTER_END:
        raise BadInput(f"{what} is {quote(value)}, not a count", fix="read the switch again")
    return value


def json_object(outputs: Outputs, label: str) -> dict[str, Any]:
    """Return one raw output as a JSON object. Raises BadInput where it is none."""
    source = TextSource(output(outputs, label))
    document = source.json()
    if not isinstance(document, dict):
        source.refuse(f"{label}: not a JSON object")
    return document


# `registry.py` lists the systems; a system that is not listed there is not understood anywhere.

Tree = dict[str, Any]
# Local port to the (system, port) heard at the other end.
Neighbours = Mapping[str, Sequence[tuple[str, str]]]
ParseCounters = Callable[[Outputs, Classes], PortCounters]


def tells_nothing(_found: object, _port: str) -> Tree:
    """Return no fields: the read-back is compared as text and nothing in it is understood."""
    return {}


def no_links(_outputs: Outputs, _ports: Sequence[str]) -> dict[str, Tree]:
    """Return no port: rate and FEC come from the settings, or from nowhere."""
    return {}


@dataclass(frozen=True)
class SwitchSystem:
    """One switch operating system."""

    name: str  # as `roce_switch_nos` gives it
    # Raw outputs of the counter commands to `{port: {counter: value}}`; None: no counter is read.
    parse: ParseCounters | None = None
    # What a configured port always reports. A port that lacks one of these was not read, which is not zero.
    reported: Callable[[Classes], tuple[str, ...]] = lambda _classes: ()
    # What a port reports on some platforms, releases or links; judged where it is there.
    may_report: tuple[str, ...] = ()
    # Counters of what enters and what leaves whose sums over a rail's ports must agree, if the system has
    # such.
    forwarded: tuple[str, str] | None = None
    # What its read-backs report of a cable's end (constants of `crosscheck`); None: unknown, so everything is
    # checked, and what it does not report stays open.
    tells: frozenset[str] | None = None
    # One port of the settings' read-back (`found`) to fields of `crosscheck.End`.
    end: Callable[[Any, str], Tree] = tells_nothing
    # Rate (`speed_gbps`) and FEC (`fec`) of ports, from a counter reading.
    links: Callable[[Outputs, Sequence[str]], dict[str, Tree]] = no_links
    # Output of its LLDP command to neighbours; raises BadInput. None: it is not asked.
    neighbours: Callable[[str], Neighbours] | None = None
    # Lossless priorities that the platform can hold, where its documents give a number.
    lossless_limit: int | None = None
    # The switch's model, and the system's own version, in what a reading has under `version` and `platform`;
    # empty: it is not read.
    model: str = ""
    version: str = ""
    # What of the intent the role neither sets nor reads on this system, in words.
    not_done: tuple[str, ...] = ()
    # Lengths of cable, in metres, that its buffer profiles know; empty: any.
    cable_lengths_m: tuple[int, ...] = ()

    def can_tell(self, what: str) -> bool:
        """Whether a check of a cable (a constant of `crosscheck`) may be asked of this system."""
        return self.tells is None or what in self.tells

    def says(self, pattern: str, outputs: Outputs) -> str:
        """Return what `model` or `version` finds in a reading, or nothing."""
        text = "\n".join(outputs.get(label, "") for label in ("version", "platform"))
        found = re.search(pattern, text) if pattern else None
        return found[1].strip()[:80] if found else ""
