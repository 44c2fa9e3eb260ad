"""Counters that a reading says it could not have: they must not look like those that a NIC has not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from shakedown.records.base import Stage
from shakedown.records.plan import Plan

# Of which sources a counter is worked out (nics/rates.py); any other is of its own.
_WORKED_OUT_OF = {
    "module.": ("dom.",),
    "phy.": ("ethtool.", "fec."),
    "pause.": ("ethtool.", "rdma."),
    "class.": ("ethtool.", "rdma."),
    "link.": ("ethtool.",),
}
Pair = tuple[int | None, int | None]


def unread_counters(
    told: Mapping[str, Pair],
    planned: Callable[[], Iterable[str]],
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> dict[str, str]:
    """Return the counters that could not be read before a test, after it or both times, and why.

    One that neither reading has is of those if both could not read what it comes from: a reading that had all
    of it would have shown that this NIC has no such counter.

    Args:
        told: every counter of a NIC before and after the test; None: it has no value.
        planned: returns those that the plan judges; asked only if something could not be read both times.
        before: what the reading before the test could not have, by counter or source, and why.
        after: the same of the reading after it.
    """
    found: dict[str, str] = {}
    if not before and not after:
        return found
    for name, (first, last) in told.items():
        both = last is None and _prefix(name) in _WORKED_OUT_OF  # of both readings
        lacking = [unread for unread, value in ((before, first), (after, last)) if value is None or both]
        if why := next(filter(None, (_why(name, unread) for unread in lacking)), ""):
            found[name] = why
    if before and after:
        for name in planned():
            if name not in told and _why(name, before) and (why := _why(name, after)):
                found[name] = why
    return found


def _why(name: str, unread: Mapping[str, str]) -> str:
    """Return why a counter could not be read; empty if the reading does not say that it could not."""
    if name in unread:
        return unread[name]
    prefix = _prefix(name)
    if prefix not in _WORKED_OUT_OF:
        return unread.get(prefix, "")
    sources = _WORKED_OUT_OF[prefix]
    return next((why for what, why in sorted(unread.items()) if what.startswith(sources)), "")


def _prefix(name: str) -> str:
    return name.partition(".")[0] + "."


def planned_counters(plan: Plan, stage: Stage, test: str) -> Callable[[str, str], Iterable[str]]:
    """Return what tells, by node and RDMA device, the counters that the plan judges over a test.

    The plan is looked through once, when something is asked: a large site asks for all its NICs, or none.
    """

    @cache
    def by_nic() -> Mapping[tuple[str, object], list[str]]:
        found: dict[tuple[str, object], list[str]] = defaultdict(list)
        for item in plan.items:
            if item.metric.startswith("counter.") and (item.stage, item.test) == (stage, test):
                for node, *others in item.nodes:
                    if not others:  # a counter is one node's
                        found[node, item.params.get("port")].append(item.metric.removeprefix("counter."))
        return found

    return lambda node, device: by_nic().get((node, device), ())
