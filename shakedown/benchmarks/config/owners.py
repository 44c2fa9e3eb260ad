"""Who owns an address on a rail: what the owner's own ARP probe and the other nodes' kernels heard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface

from pydantic import ValidationError

from shakedown.benchmarks.base.metrics import Output
from shakedown.benchmarks.config.neighbours import peers
from shakedown.benchmarks.config.order import SettingsOrder
from shakedown.benchmarks.config.settings import DUPLICATES, TargetReport
from shakedown.records.errors import BadInput

Owner = tuple[str, str]  # node, MAC


def second_owners(output: Output[SettingsOrder], report: TargetReport) -> str:
    """Say who else answered for this NIC's address; empty if nobody did, or nothing of it is known."""
    found = next((s.found for s in report.settings if s.key == DUPLICATES), None)
    if not isinstance(found, list) or not found:
        return ""
    address = str(output.order.expect[output.node][report.target].get("ipv4", ""))
    others = [_named(str(mac), _owners(output, output.record.rail)) for mac in found[:3]]
    return _sentence(
        address, output.record.rail, (output.node, _mac(report)), " and by ".join(others), output.node
    )


def wrong_neighbours(output: Output[SettingsOrder], report: TargetReport) -> tuple[int | None, str]:
    """Return how many of the rail's addresses this node's kernel knows by another MAC than their owner's.

    None instead of a number, and why, if the node could not read what its kernel knows, or if one of those
    whom no router keeps away did not answer. An owner that left no report, or whom nobody answered either, is
    not held against anything: its own cells say so.
    """
    if report.neighbours is None:
        return None, "the kernel's table of neighbours could not be read"
    rail, reports = output.record.rail, _reports(output, output.record.rail)
    owners = {address: (node, _mac(theirs)) for address, (node, theirs) in reports.items()}
    near = _beside(output, report, owners)
    if not report.neighbours and near:
        return None, f"the kernel's table of neighbours names none of {rail}: {near[0]} is one"
    wrong = [
        _sentence(address, output.record.rail, owners[address], _named(mac, owners), output.node)
        for address, mac in sorted(report.neighbours.items())
        if address in owners and owners[address][1] not in ("", mac)
    ]
    order = {"targets": output.order.targets, "expect": output.order.expect}
    asked = peers(order, output.node, report.target)
    silent = [a for a in near if a in asked and a not in report.neighbours and reports[a][1].neighbours != {}]
    if silent and not wrong:
        named = ", ".join(f"{address} of {owners[address][0]}" for address in silent[:3])
        return None, f"{len(silent)} of {len(asked)} neighbours on {rail} did not answer: {named}"
    return len(wrong), "; ".join(wrong[:3])


def _beside(output: Output[SettingsOrder], report: TargetReport, owners: Iterable[str]) -> list[str]:
    """Return the addresses of other NICs that this one reaches without a router, by its own prefix.

    None where another NIC of the node has the same prefix: there the kernel may have asked by that one.
    """
    try:
        mine = ip_interface(str(next(s.found for s in report.settings if s.key == "ipv4")))
    except (StopIteration, ValueError):
        return []
    own = [str(wanted.get("ipv4")) for wanted in output.order.expect[output.node].values()]
    if any(_within(address, mine) for address in own):
        return []
    return sorted(address for address in owners if _within(address, mine))


def _within(address: str, mine: IPv4Interface | IPv6Interface) -> bool:
    try:
        other = ip_address(address)
    except ValueError:
        return False
    return other != mine.ip and other in mine.network


def _on_rail(order: SettingsOrder, rail: str | None) -> Iterator[tuple[str, str, str]]:
    """Yield (address, node, target) of every NIC on a rail."""
    for node, targets in order.targets.items():
        for target, on in targets.items():
            address = order.expect[node][target].get("ipv4")
            if on == rail and isinstance(address, str):
                yield address, node, target


def _owners(output: Output[SettingsOrder], rail: str | None) -> dict[str, Owner]:
    """Return who owns each address of a rail by the intent, with the MAC that its own report names."""
    return {address: (node, _mac(theirs)) for address, (node, theirs) in _reports(output, rail).items()}


def _reports(output: Output[SettingsOrder], rail: str | None) -> dict[str, tuple[str, TargetReport]]:
    """Return, by each address of a rail, its node by the intent and what that reported of its NIC."""
    found: dict[str, tuple[str, TargetReport]] = {}
    for address, node, target in _on_rail(output.order, rail):
        try:
            text = output.folder.text(f"settings.{node}.{target}.json")
            found[address] = (node, TargetReport.model_validate_json(text))
        except (BadInput, OSError, ValidationError):
            continue
    return found


def _mac(report: TargetReport) -> str:
    return next((str(s.found) for s in report.settings if s.key == "mac" and s.found), "")


def _named(mac: str, owners: dict[str, Owner]) -> str:
    """Name a MAC by the node that has it on this rail, if one has."""
    node = next((node for node, theirs in owners.values() if theirs == mac), "")
    return f"{node} ({mac})" if node else mac


def _sentence(address: str, rail: str | None, owner: Owner, other: str, heard_at: str) -> str:
    at = f" ({owner[1]})" if owner[1] else ""
    return f"{address} on {rail} is owned by {owner[0]}{at} and by {other}, heard at {heard_at}"
