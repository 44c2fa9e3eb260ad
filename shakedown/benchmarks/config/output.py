"""Settings read back from nodes, and who owns an address on a rail."""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface
from typing import NamedTuple

from pydantic import ValidationError

from shakedown.benchmarks.base.contract import Output, Value
from shakedown.benchmarks.config.job import on_rail, peers
from shakedown.benchmarks.config.settings import (
    DUPLICATES,
    NEIGHBOURS,
    ROUTES,
    FoundRoute,
    ReadBackSettings,
    TargetReport,
    judge,
)
from shakedown.records.base import Better, Params
from shakedown.records.reading import BadInput, read_as
from shakedown.records.results import RunProblem
from shakedown.records.wording import BLAMES
from shakedown.run.nic_counters import JobFolder


class _Heard(NamedTuple):
    """What the node of an address reported of its NIC there: whose it is, and whether anybody answered it."""

    node: str
    mac: str
    anybody: bool


def second_owners(output: Output[ReadBackSettings], report: TargetReport) -> str:
    """Say who else answered for this NIC's address; empty if nobody did, or nothing of it is known."""
    found = next((s.found for s in report.settings if s.key == DUPLICATES), None)
    if not isinstance(found, list) or not found:
        return ""
    address = str(output.order.expect[output.node][report.target].get("ipv4", ""))
    mine = _Heard(output.node, _mac(report), anybody=True)
    others = " and by ".join(_named(str(mac), output) for mac in found[:3])
    return _sentence(address, output.record.rail, mine, others, output.node)


def wrong_neighbours(output: Output[ReadBackSettings], report: TargetReport) -> tuple[int | None, str]:
    """Return how many of the rail's addresses this node's kernel knows by another MAC than their owner's.

    None instead of a number, and why, if the node could not read what its kernel knows, or if one of those
    whom no router keeps away did not answer. An owner that left no report, or whom nobody answered either, is
    not held against anything: its own cells say so.
    """
    known, rail = report.neighbours, output.record.rail
    if known is None:
        return None, "the kernel's table of neighbours could not be read"
    owners = _owners(output)
    asked = _asked(output, report.target)
    silent = _beside(output, report, [a for a in asked if a not in known and a in owners])
    if silent and not known:
        return None, f"the kernel's neighbour table lists none of {rail}: {silent[0]} is one"
    wrong = [
        _sentence(address, rail, owners[address], _named(mac, output), output.node)
        for address, mac in sorted(known.items())
        if address in owners and owners[address].mac not in ("", mac)
    ]
    silent = [address for address in silent if owners[address].anybody]
    if silent and not wrong:
        named = ", ".join(f"{address} of {owners[address].node}" for address in silent[:3])
        return None, f"{len(silent)} of {len(asked)} neighbours on {rail} did not answer: {named}"
    return len(wrong), "; ".join(wrong[:3])


def strange_routes(output: Output[ReadBackSettings], report: TargetReport) -> tuple[int | None, str]:
    """Return to how many of its rail's addresses this node does not send as planned, and how it does.

    Where the site has several NICs of a node in one network, the kernel sends by either of them unless a
    program says by which, as RDMA does: that is no fault of the route.
    """
    if report.routes is None:
        return None, "how its kernel sends to the rail's other addresses was not read"
    found = [(way, words) for way in report.routes if (words := _stray(output, report, way))]
    told = "; ".join(words + (f", as to {way.of - 1} more" if way.of > 1 else "") for way, words in found[:3])
    return sum(way.of for way, _ in found), told


def _stray(  # noqa: PLR0911  (one sentence per return reads best)
    output: Output[ReadBackSettings], report: TargetReport, way: FoundRoute
) -> str:
    """Say in what a way is not that of its own rail; empty if it is."""
    node, rail, expect = output.node, output.record.rail, output.order.expect
    ends = output.folder.kept((_ends,), lambda: _ends(output.order))
    owner, _ = ends.get(way.to[0], ("somebody", ""))
    theirs = f"{owner}'s {way.to[0]} on {rail}"
    if way.own:
        heard = _owners(output).get(way.to[0], _Heard(owner, "", anybody=True))
        return _sentence(way.to[0], rail, heard, f"{node} (on its {way.netdev})", node)
    if way.netdev is None:
        return f"{node} has no route to {theirs}"
    own, wanted = expect[node][report.target], expect[node][report.target].get("mtu.host_bytes")
    by = ends.get(way.gateway or "")
    via = (f", by {by[0]}'s {way.gateway} on {by[1]}" if by else f", by {way.gateway}") if way.gateway else ""
    if way.netdev != report.target:
        if not way.gateway and _one_network(report, expect[node].get(way.netdev, {}).get("ipv4")):
            return ""
        other = output.order.targets[node].get(way.netdev)
        over = f"{way.netdev}, which is {f'its NIC on {other}' if other else 'of no rail'}"
        return f"{node} sends to {theirs} over {over}{via}"
    if by:
        return f"{node} sends to {theirs} by another node{via}"
    if way.mtu_bytes is not None and isinstance(wanted, int) and way.mtu_bytes < wanted:
        return (
            f"{node} sends to {theirs} by a route with an MTU of {way.mtu_bytes} bytes, {wanted} are wanted"
        )
    if way.source not in (None, own.get("ipv4")):
        return f"{node} sends to {theirs} from {way.source}, its own address there is {own.get('ipv4')}"
    return ""


def _ends(order: ReadBackSettings) -> dict[str, tuple[str, str]]:
    """Return the node and the rail of every NIC's address."""
    return {
        str(order.expect[node][target]["ipv4"]): (node, rail)
        for node, targets in order.targets.items()
        for target, rail in targets.items()
        if rail is not None and "ipv4" in order.expect[node][target]
    }


def _asked(output: Output[ReadBackSettings], target: str) -> list[str]:
    """Return whom the node looked for on a NIC; the rail's list is made once for a job, as it is long."""
    spec, rail = {"targets": output.order.targets, "expect": output.order.expect}, output.record.rail
    nics = output.folder.kept((on_rail, rail), lambda: on_rail(spec, rail or ""))
    return peers(spec, output.node, target, nics)


def _beside(output: Output[ReadBackSettings], report: TargetReport, addresses: list[str]) -> list[str]:
    """Return those of some addresses that this NIC reaches without a router, by its own prefix.

    None where another NIC of the node has the same prefix: there the kernel may have asked by that one.
    """
    own = [wanted.get("ipv4") for wanted in output.order.expect[output.node].values()]
    if any(_one_network(report, address) for address in own):
        return []
    return sorted(address for address in addresses if _one_network(report, address))


def _one_network(report: TargetReport, address: object) -> bool:
    """Whether an address is in the network of a NIC, by the prefix that it has, and not its own."""
    try:
        mine = ip_interface(str(next(s.found for s in report.settings if s.key == "ipv4")))
    except (StopIteration, ValueError):
        return False
    return isinstance(address, str) and _within(address, mine)


def _within(address: str, mine: IPv4Interface | IPv6Interface) -> bool:
    try:
        other = ip_address(address)
    except ValueError:
        return False
    return other != mine.ip and other in mine.network


def _owners(output: Output[ReadBackSettings], rail: str | None = None) -> Mapping[str, _Heard]:
    """Return who owns each address of a rail (the output's) by the intent, with what their own reports say.

    Made once for a job and rail: each of its many outputs is held against all of them.
    """
    rail = rail or output.record.rail
    return output.folder.kept((_owners, rail), lambda: dict(_heard(output.folder, output.order, rail)))


def _heard(folder: JobFolder, order: ReadBackSettings, rail: str | None) -> Iterator[tuple[str, _Heard]]:
    for node, targets in order.targets.items():
        for target, on in targets.items():
            address = order.expect[node][target].get("ipv4")
            if on != rail or not isinstance(address, str):
                continue
            try:
                text = folder.text(f"settings.{node}.{target}.json")
                report = TargetReport.model_validate_json(text)
            except (BadInput, OSError, ValidationError):
                continue
            yield address, _Heard(node, _mac(report), report.neighbours != {})


def _mac(report: TargetReport) -> str:
    return next((str(s.found) for s in report.settings if s.key == "mac" and s.found), "")


def _named(mac: str, output: Output[ReadBackSettings]) -> str:
    """Name a MAC by the node that has it on this rail, or on another one, if one has."""
    mine, order = output.record.rail, output.order
    rails = {rail for targets in order.targets.values() for rail in targets.values() if rail and rail != mine}
    for rail in (mine, *sorted(rails)):
        for theirs in _owners(output, rail).values():
            if theirs.mac == mac:
                return f"{theirs.node}{'' if rail == mine else f' on {rail}'} ({mac})"
    return mac


def _sentence(address: str, rail: str | None, owner: _Heard, other: str, heard_at: str) -> str:
    mine = f"{owner.node} ({owner.mac})" if owner.mac else owner.node
    return BLAMES["two-owners"].told(address=address, rail=rail, owner=mine, other=other, node=heard_at)


def settings(output: Output[ReadBackSettings]) -> Iterator[Value]:
    """Yield 0 or 1 for each setting: whether what was found differs from what was wanted.

    What could not be asked for lack of rights has no number, and the reason.
    """
    report = read_as(TargetReport, output.text, file=output.file, about="no read-back", fix="run it again")
    if elsewhere := _elsewhere(output, report):
        raise BadInput(
            elsewhere, fix="run it again: another's read-back proves nothing here", file=output.file
        )
    expected = output.order.expect[output.node][report.target]
    found = list(judge(report, expected))
    if NEIGHBOURS in expected:
        found.append((NEIGHBOURS, *wrong_neighbours(output, report)))
    if ROUTES in expected:
        found.append((ROUTES, *strange_routes(output, report)))
    for setting, wrong, detail in found:
        params: Params = {"setting": setting}
        if wrong is None:
            unknown = RunProblem(kind="not-run", message=detail[:2000])
            yield "wrong", None, "1", Better.LOWER, params, "", (), unknown
        else:
            words = second_owners(output, report) if setting == DUPLICATES else ""
            yield "wrong", float(wrong), "1", Better.LOWER, params, words or detail


def _elsewhere(output: Output[ReadBackSettings], report: TargetReport) -> str:
    """Return why this is the read-back of another node or target than the record's; empty if it is not."""
    targets = output.order.targets.get(output.node, {})
    if report.target not in targets:
        return f"{output.node} was not asked for {report.target}"
    if report.node is not None and report.node != output.node:
        return f"this is the read-back of {report.node}, its record says {output.node}"
    if targets[report.target] != output.record.rail:
        its = targets[report.target] or "the whole node"
        return f"{report.target} is of {its}, its record says {output.record.rail or 'the whole node'}"
    if output.record.rail is None and output.record.file != f"settings.{output.node}.{report.target}.json":
        return f"this is the read-back of {report.target}, its record says {output.record.file}"
    return ""
