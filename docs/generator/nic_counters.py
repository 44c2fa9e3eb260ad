"""docs/reference/nic-counters.md: which counter sees which fault, and every limit with its source."""

from __future__ import annotations

from generator.text import code, made, sentence, table

from shakedown.nics.families import FAMILIES
from shakedown.nics.witnesses import FAULTS, TOLD, seen
from shakedown.records.wording import BLAMES
from shakedown.references.files import load_profile

_HEAD = """# What the counters of NICs show

Around every job all counters of every RDMA device of its nodes are read: sysfs (`rdma.`, `ib.`,
`netdev.`), ethtool's own (`ethtool.`, without those of single rings), FEC (`fec.`), and devlink's health
reporters (`devlink.`). What is worked out of two readings: `phy.` (error ratios), `pause.` (part of the
time), `class.` (bytes outside the priority), `twice.` (packets that the network copied), `link.` (how full
the line was on average over the job, each way). `reading.both_ms` is how long the two readings of the node
took, which is part of the job's time. No reading needs root. `prioN` is the site's own RoCE priority.

`dom.` is what a NIC's optical module says of itself: `dom.alarms` and `dom.warnings` are its flags, or its
values beyond its own thresholds where those are more, beside temperature (thousandths of degrees C),
voltage (uV), bias (uA) and light (nW) by lane. A timer of the node reads them every two minutes
(`ethtool -m`); a job takes what was read last. `module.alarms` and `module.warnings` are what was up at
either reading or in between. Copper has none of it: the reading says so under `flaws`, and nothing is missed.

What a NIC and its kernel have, and could not be read, stands under `unread` with the reason: its cells are
INCONCLUSIVE with those words, although other NICs need not have such a counter.

A NIC's driver is known by `driver` in `fabric_nics`, else by the name of its RDMA device; the profile of
its family is then applied at any site, at the fabric stage and above, unless a profile of the site has
the same metric. A site whose fabric reorders packets sets `acceptance.reorders`; one that wants no NIC
without limits sets `acceptance.known_nics_only`. A virtual function has no port counters: its cells stay
NOT-RUN.

Limits come from the names' meaning and from standards; they were held against made readings, and no real
NIC.
"""
_LIMITS = """Required: the reading must have it. If reported: judged where the NIC has it, not missed where it
has not. A counter that the driver always reports and that a reading lacks was cut off, and is INCONCLUSIVE.
"""


def pages() -> dict[str, str]:
    """Return the page."""
    parts = [made("shakedown/nics/witnesses.yml and the profiles nic_*"), _HEAD]
    parts += ["## Witnesses\n", _witnesses(), _shares(), *(_limits(family.name) for family in FAMILIES)]
    parts += ["## Of every NIC, judged by no limit\n", _told("any")]
    return {
        "docs/reference/nic-counters.md": "\n".join(parts),
        "docs/reference/blames.md": "\n".join(
            (made("shakedown/records/wording.py, BLAMES"), _BLAMES, _blames())
        ),
    }


_BLAMES = """# What each blame rests on

Every sentence that says what is at fault, with the independent readings that carry it, what else gives the
same readings, and the next look. One reading alone leaves doubt: the sentence says so and gives the look.
"""


def _blames() -> str:
    return table(
        ("sentence", "witnesses", "what else it may be", "next look"),
        [
            (sentence(blame.says), "; ".join(blame.witnesses), blame.or_else, code(blame.next_look))
            if blame.next_look
            else (sentence(blame.says), "; ".join(blame.witnesses), blame.or_else, "")
            for blame in BLAMES.values()
        ],
    )


def _witnesses() -> str:
    names = [family.name for family in FAMILIES]
    return table(
        ("fault", "look at", *names, "beside or instead"),
        [
            (
                f"{code(fault.name)}: {fault.text}",
                fault.points_at,
                *(", ".join(map(code, fault.counters.get(name, ()))) or "none" for name in names),
                fault.measured,
            )
            for fault in FAULTS
        ],
    )


def _shares() -> str:
    lines = []
    for family in FAMILIES:
        witnessed = sum(fault.witnessed(family.name) for fault in FAULTS)
        lines.append(
            f"- {family.name}: {len(seen(family.name))} of {len(FAULTS)} by judged counters, "
            f"{witnessed} with judged cells of other tests, where a site asks for them."
        )
    return "\n".join(lines) + "\n"


def _told(name: str) -> str:
    return table(
        ("counter", "why no limit"),
        [(" ".join(map(code, names.split())), sentence(why)) for why, names in TOLD[name].items()],
    )


def _limits(name: str) -> str:
    rows = [
        (
            code(entry.metric.removeprefix("counter.")),
            f"{entry.reference().gate:.10g}",
            "if reported" if entry.if_reported else "required",
            sentence(entry.source + (f"; {entry.note}" if entry.note else "")),
        )
        for entry in load_profile(f"nic_{name}").entries
    ]
    return "\n".join(
        [
            f"## Limits: `nic_{name}`\n",
            _LIMITS,
            table(("counter", "at most", "", "source"), rows),
            "Kept, and judged by no limit:\n",
            _told(name),
        ]
    )
