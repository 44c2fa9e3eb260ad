"""The customer's order and whether the plan is the ordered one.

    python -m shakedown.evidence.orders RUN-FOLDER ORDER

puts a signed order into the run that it is for: refused, with exit status 2, if the order is of another
plan, not valid now, or its signature does not hold.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from shakedown.evidence import signatures
from shakedown.evidence.signatures import Order, OrderedNode, OrderedTest, SealFinding, ordered_tests
from shakedown.plan.jobs import Jobs
from shakedown.records.base import Better, params_text, to_json
from shakedown.records.plan import Plan, Reference
from shakedown.records.program import ended, status_of
from shakedown.records.reading import BadInput, ExitStatus, read_bytes, read_record, refusal
from shakedown.records.results import Snapshot
from shakedown.records.wording import in_unit
from shakedown.records.writing import write_aside
from shakedown.references.catalogue import ReferenceEntry
from shakedown.references.files import load_profile, profile_names
from shakedown.run.folder import INVENTORY, JOBS, ORDER, ORDER_SIGNATURE, PLAN

_LARGEST = 16 << 20


@dataclass
class Hosts:
    """What files say of machines, by name."""

    machines: dict[str, str] = field(default_factory=dict)
    keys: dict[str, set[str]] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)

    def node(self, name: str) -> OrderedNode:
        """Return one machine. Raises BadInput: its host key is not known."""
        keys, where = self.keys.get(name), self.files[0] if len(self.files) == 1 else None
        if not keys:
            raise BadInput(
                f"has no host key of {name}", fix=f"add what ssh-keyscan -t ed25519 {name} prints", file=where
            )
        try:
            return OrderedNode(machine=self.machines.get(name) or None, host_keys=tuple(sorted(keys)))
        except ValidationError as error:
            raise refusal(error, OrderedNode, file=where or self.files[0]) from None


def read_hosts(files: Iterable[Path]) -> Hosts:
    """Read snapshots (`inventory.json`) and known_hosts files.

    Raises:
        BadInput: a file is neither, or two of them name different keys of a machine.
    """
    hosts = Hosts()
    for path in files:
        hosts.files.append(path)
        content = read_bytes(path, _LARGEST)
        machines, keys = _snapshot(path) if content.lstrip()[:1] == b"{" else _known_hosts(content, path)
        for name, found in keys.items():
            known = hosts.keys.setdefault(name, set())
            if known and not known & found:
                raise BadInput(f"has other host keys of {name} than the files before it", file=path)
            known |= found
        hosts.machines |= machines
    return hosts


def refuse_twins(nodes: dict[str, OrderedNode]) -> None:
    """Refuse machines that have a host key in common: what one of them signs, the other could have.

    Raises BadInput.
    """
    whose: dict[str, str] = {}
    for name, node in nodes.items():
        for key in node.host_keys:
            if (other := whose.setdefault(key, name)) != name:
                raise BadInput(
                    f"{other} and {name} have the same SSH host key: whose outputs they sign is unknown",
                    fix="make each a key of its own (ssh-keygen -A, after removing the copied ones)",
                )


def _snapshot(path: Path) -> tuple[dict[str, str], dict[str, set[str]]]:
    machines: dict[str, str] = {}
    keys: dict[str, set[str]] = {}
    for part in read_record(path, Snapshot).components:
        if part.kind == "node":
            machines[part.host] = part.attributes.get("machine_id", "")
            keys[part.host] = set(part.attributes.get("ssh_host_keys", "").split())
    return machines, keys


def _known_hosts(content: bytes, path: Path) -> tuple[dict[str, str], dict[str, set[str]]]:
    keys: dict[str, set[str]] = {}
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            if words[0].startswith(("|", "@")) or len(words) < 3:
                raise ValueError("names are hashed or marked, or a word is missing")
            blob = base64.b64decode(words[2], validate=True)
        except ValueError as error:
            raise BadInput(
                f"not a line of known_hosts: {error}"[:200],
                fix="write NAME TYPE KEY, as ssh-keyscan prints it",
                file=path,
                line=number,
            ) from None
        print_ = "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
        for name in words[0].split(","):
            keys.setdefault(name, set()).add(print_)
    return {}, keys


_TIME = "%Y-%m-%dT%H:%M:%SZ"
# Nodes keep what they signed for four months (signer.py).
MOST_DAYS = 90


def make(folder: Path, hosts: Iterable[Path], *, user: int, days: int, submit: str | None = None) -> Order:
    """Return the order of a planned run.

    Args:
        folder: with plan.json and jobs.json.
        hosts: snapshots or known_hosts files, for the machines of all its nodes.
        user: whose jobs they are, by number.
        days: how long it is valid, from now.
        submit: the host that submits the jobs, if it is to sign which there were.

    Raises:
        BadInput: a file is not in order, a node's host key is not known, or two nodes share one.
    """
    if not 1 <= days <= MOST_DAYS:
        raise BadInput(
            f"{days} days: an order is valid for 1 to {MOST_DAYS}", fix="give --days in that range"
        )
    plan, jobs = read_record(folder / PLAN, Plan), read_record(folder / JOBS, Jobs)
    if plan.simulated or not jobs.jobs:
        raise BadInput("has no jobs: nothing would be measured", fix="plan the run anew", file=folder / JOBS)
    known = read_hosts(hosts)
    nodes = {
        name: known.node(name) for name in sorted({*plan.nodes, *(n for j in jobs.jobs for n in j.nodes)})
    }
    refuse_twins(nodes)
    now = datetime.now(UTC)
    return Order(
        run=plan.run,
        system=plan.system,
        nonce=secrets.token_hex(32),
        plan=digest(read_bytes(folder / PLAN)),
        jobs=digest(read_bytes(folder / JOBS)),
        not_before=now.strftime(_TIME),
        not_after=(now + timedelta(days=days)).strftime(_TIME),
        nodes=nodes,
        user=user,
        submit=known.node(submit) if submit else None,
        tests=ordered_tests(plan),
        references=plan.references,
    )


def write(order: Order, path: Path, key: Path) -> None:
    """Write an order and its signature, `PATH.sig`. Raises BadInput: the key cannot sign."""
    content = to_json(order)
    signature = signatures.sign(content, key)
    signature_of(path).unlink(missing_ok=True)
    write_aside(path, content)
    write_aside(signature_of(path), signature)


def signature_of(path: Path) -> Path:
    """Return where an order's signature lies."""
    return path.with_name(f"{path.name}.sig")


def read(path: Path, signers: Path | None) -> tuple[Order, bytes, str | None]:
    """Return an order, its bytes, and who signed it.

    Raises:
        BadInput: it is none, its signature does not hold, or nobody in `signers` made it.
    """
    content = read_bytes(path)
    order = read_record(path, Order)
    who, flaw = signatures.signer(signature_of(path), content, signers)
    if flaw:
        raise BadInput(flaw, fix="take the order as its signer gave it, with its .sig", file=path)
    return order, content, who


def take(folder: Path, path: Path) -> None:
    """Put an order into the run that it is for, before the run begins.

    Raises:
        BadInput: it is of another plan, or not valid now.
    """
    order, content, _ = read(path, None)
    for name, wanted in ((PLAN, order.plan), (JOBS, order.jobs)):
        if digest(read_bytes(folder / name)) != wanted:
            raise BadInput(
                f"was not ordered: {path} is of another one",
                fix=f"measure the plan that was ordered: -e run_id={order.run}",
                file=folder / name,
            )
    now = datetime.now(UTC).strftime(_TIME)
    if not order.not_before <= now <= order.not_after:
        raise BadInput(
            f"is valid from {order.not_before} to {order.not_after}, not now, {now}",
            fix="ask for another order",
            file=path,
        )
    signature = read_bytes(signature_of(path), signatures.LARGEST_SIGNATURE)
    write_aside(folder / ORDER, content)
    write_aside(folder / ORDER_SIGNATURE, signature)


def digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


_Block = tuple[str, str, str, str]


def plan_findings(folder: Path, plan: Plan, order: Order) -> Iterator[SealFinding]:
    """Yield how plan, jobs and machines differ from the order's. Raises BadInput."""
    if digest(read_bytes(folder / PLAN)) != order.plan:
        said = list(_of_plan(plan, order))
        yield from (SealFinding(PLAN, why) for why in said)
        if not said:
            yield SealFinding(PLAN, "is not the plan that was ordered: its SHA-256 differs")
    if digest(read_bytes(folder / JOBS)) != order.jobs:
        yield SealFinding(JOBS, "are not the jobs that were ordered: their SHA-256 differs")
    for node in plan.nodes:
        if node not in order.nodes:
            yield SealFinding(PLAN, f"{node} is no node of the order")
    if (folder / INVENTORY).exists():
        yield from _of_machines(read_record(folder / INVENTORY, Snapshot), order)
    else:
        yield SealFinding(INVENTORY, "is missing: nothing says which machines these are")


def _of_plan(plan: Plan, order: Order) -> Iterator[str]:
    if (plan.run, plan.system) != (order.run, order.system):
        yield f"is of run {plan.run} on {plan.system}, the order of run {order.run} on {order.system}"
    for name, reference in plan.references.items():
        ordered = order.references.get(name)
        if ordered is None:
            yield f"reference {name} is not of the order"
        elif reference != ordered:
            yield f"reference {name}: {difference(ordered, reference)}"
    here, there = _blocks(ordered_tests(plan)), _blocks(order.tests)
    for block in sorted(here.keys() | there.keys()):
        name = " ".join(part for part in block if part)
        if block not in here:
            yield f"{name} was ordered and is not in the plan"
        elif block not in there:
            yield f"{name} is in the plan and was not ordered"
        else:
            yield from (f"{name} {how}" for how in _eased(there[block], here[block]))


def _blocks(tests: tuple[OrderedTest, ...]) -> dict[_Block, list[OrderedTest]]:
    found: dict[_Block, list[OrderedTest]] = defaultdict(list)
    for test in tests:
        found[test.stage.value, test.test, test.metric, params_text(test.params)].append(test)
    return found


def _eased(ordered: list[OrderedTest], here: list[OrderedTest]) -> Iterator[str]:
    """Yield how the blocks of one test, metric and parameters differ from those that were ordered."""
    was, now = (sum(test.cells for test in tests) for tests in (ordered, here))
    if was != now:
        yield f"has {now} cells, {was} were ordered"
    if all(t.required for t in ordered) and not all(t.required for t in here):
        yield "is not required any more"
    if not any(t.not_run for t in ordered) and (why := next((t.not_run for t in here if t.not_run), None)):
        yield f"is not to be run ({why[:80]}), though it was ordered"
    references = ({t.reference for t in ordered}, {t.reference for t in here})
    if references[0] != references[1]:
        new, old = (", ".join(sorted(names)) for names in reversed(references))
        yield f"is held to {new}, ordered was {old}"


def difference(ordered: Reference, here: Reference) -> str:
    """Say how a reference differs from another of its name, its gate first."""
    if here.gate != ordered.gate:
        looser = (here.gate < ordered.gate) == (here.better is Better.HIGHER)
        how = "loosened" if looser else "tightened"
        return f"gate {how}, from {ordered.gate:g} to {here.gate:g} {here.unit}"
    changed = [
        name
        for name in Reference.model_fields
        if name != "id" and getattr(here, name) != getattr(ordered, name)
    ]
    return f"{', '.join(changed)} changed"


def _of_machines(snapshot: Snapshot, order: Order) -> Iterator[SealFinding]:
    """Yield machines of the snapshot that are other ones than those of the order, or are not in it."""
    told = {part.host for part in snapshot.components if part.kind == "node"}
    for name, ordered in order.nodes.items():
        if ordered.machine is not None and name not in told:
            yield SealFinding(INVENTORY, f"says nothing of {name}: which machine it was is not told")
    for part in snapshot.components:
        node = order.nodes.get(part.host)
        if part.kind != "node" or node is None:
            continue
        machine = part.attributes.get("machine_id", "")
        if node.machine is not None and machine != node.machine:
            yield SealFinding(
                INVENTORY, f"{part.host} is another machine than the order's: its machine id differs"
            )
        keys = set(part.attributes.get("ssh_host_keys", "").split())
        if keys and not keys & set(node.host_keys):
            yield SealFinding(INVENTORY, f"{part.host} has other SSH host keys than the order says")


def facts(folder: Path) -> dict[str, str]:
    """Return run, system, date of the plan, and the plan's digest. Raises BadInput."""
    plan = read_record(folder / PLAN, Plan)
    return {
        "run": plan.run,
        "system": plan.system,
        "planned": plan.created,
        "plan": digest(read_bytes(folder / PLAN)),
    }


def gates(folder: Path) -> list[str]:
    """Return what of a plan's references is not as a shipped profile has it, a line each. Raises BadInput."""
    plan = read_record(folder / PLAN, Plan)
    return list(_gates(plan, _shipped()))


def eased(folder: Path) -> Iterator[str]:
    """Yield what whoever signs a plan should know that it lets pass, a line each. Raises BadInput.

    Gates of its own, tests that are not to be run or not required, and waivers.
    """
    plan = read_record(folder / PLAN, Plan)
    yield from (f"gate of its own: {gate}" for gate in _gates(plan, _shipped()))
    for item in plan.items:
        name = f"{item.stage.value} {item.test} {item.metric}, {len(item)} cells"
        if item.not_run:
            yield f"not to be run: {name}: {item.not_run}"
        elif not item.required:
            yield f"not required: {name}"
    for waiver in plan.waivers:
        yield f"waived until {waiver.expires}: {waiver.cells}, by {waiver.owner}: {waiver.reason}"


def held(folder: Path) -> list[str]:
    """Return what a plan holds a system to, a line each: gates, and what its jobs expect. Raises BadInput.

    A gate stands with its share of the physical ceiling, and with the strictest share that a shipped profile
    asks of the same test: the profile of an emulated lab lets a hundredth of a percent pass.
    """
    plan, jobs = read_record(folder / PLAN, Plan), read_record(folder / JOBS, Jobs)
    strictest = _strictest()
    groups: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for item in plan.items:
        groups[item.stage.value, item.test, item.metric].add(item.reference)
    found, zeros = [], 0
    for (stage, test, metric), names in groups.items():
        gates_of = [plan.references[name] for name in sorted(names)]
        if not any(reference.gate for reference in gates_of):
            zeros += 1
            continue
        loosest = min(gates_of, key=strictness)
        line = f"{stage} {test} {metric}: {asked(loosest)}"
        if len(gates_of) > 1:
            line += f", the loosest of {len(gates_of)}"
        best = strictest.get((test, metric, _share(loosest) is not None))
        if best and best[0].gate != loosest.gate:
            line += f"; the strictest that is shipped: {asked(best[0])} ({best[1]})"
        found.append(line)
    found.append(f"{zeros} tests and metrics of which none may be counted (0)")
    expected = {f"jobs of {job.kind} expect {_leaves(job.settings)}"[:400]: None for job in jobs.jobs}
    return found + list(expected)


def asked(reference: Reference) -> str:
    """Say what a gate asks and what share of the physical ceiling that is."""
    worst = "at least" if reference.better == "higher" else "at most"
    share = _share(reference)
    of = (
        f", {100 * share:.3g} % of its ceiling {reference.ceiling:.5g}"
        if share is not None
        else ", no ceiling"
    )
    return f"{worst} {in_unit(f'{reference.gate:g}', reference.unit)}{of}"


def _share(reference: Reference) -> float | None:
    """Return what share of its ceiling a gate asks; None: it has none."""
    return reference.gate / reference.ceiling if reference.ceiling and reference.better == "higher" else None


def _strictest() -> dict[tuple[str, str, bool], tuple[Reference, str]]:
    """Return the strictest gate of the shipped profiles, by test, metric and whether it has a ceiling."""
    found: dict[tuple[str, str, bool], tuple[Reference, str]] = {}
    for name, entry, reference in _shipped_entries():
        key = (entry.test, entry.metric, _share(reference) is not None)
        if entry.gates and (key not in found or strictness(reference) > strictness(found[key][0])):
            found[key] = (reference, name)
    return found


def strictness(reference: Reference) -> float:
    """Return how much a gate asks beside others of its test and metric: more is stricter."""
    share = _share(reference)
    return share if share is not None else reference.gate * (1 if reference.better == "higher" else -1)


def _leaves(settings: object) -> str:
    """Return the values in a job's settings, those of one name together and once: `iterations=5, 10`."""
    values: dict[str, dict[str, None]] = defaultdict(dict)

    def walk(value: object, name: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, str(key))
        elif isinstance(value, list):
            for inner in value:
                walk(inner, name)
        elif value is not None and name not in _OF_PLACES:
            values[name][str(value)] = None

    walk(settings, "")
    return "; ".join(f"{key}={', '.join(list(all_of)[:8])}" for key, all_of in sorted(values.items()))


# Settings that say where, and not what is expected.
_OF_PLACES = frozenset(
    {"address", "rdma_device", "netdev", "ipv4", "rdma.device", "schema", "nodes", "pairs"}
)


def _shipped() -> dict[str, list[Reference]]:
    found: dict[str, list[Reference]] = defaultdict(list)
    for _, entry, reference in _shipped_entries():
        found[entry.id].append(reference)
    return found


@cache  # gates of its own and the strictest ones are both asked for, of one plan
def _shipped_entries() -> tuple[tuple[str, ReferenceEntry, Reference], ...]:
    return tuple(
        (name, entry, entry.reference()) for name in profile_names() for entry in load_profile(name).entries
    )


def _gates(plan: Plan, shipped: dict[str, list[Reference]]) -> Iterator[str]:
    required = {item.reference for item in plan.items if item.required}
    used = {item.reference for item in plan.items}
    for name, reference in sorted(plan.references.items()):
        known = shipped.get(name)
        if known is None:
            whose = f"{reference.kind.value}, {reference.source}"[:120]
            worst = "at least" if reference.better == "higher" else "at most"
            gate = in_unit(f"{reference.gate:g}", reference.unit)
            yield f"{name}: {worst} {gate}, in no shipped profile ({whose})"
        elif reference not in known:
            yield f"{name}: {difference(known[0], reference)}"
        elif name in used - required:
            yield f"{name}: no cell that it decides is required"


def main(argv: list[str]) -> int:
    """Take the order; return the exit status."""
    if len(argv) != 2:
        print("usage: python -m shakedown.evidence.orders RUN-FOLDER ORDER", file=sys.stderr)
        return ExitStatus.BAD_INPUT
    return status_of(lambda: take(Path(argv[0]), Path(argv[1])))


if __name__ == "__main__":
    ended(lambda: main(sys.argv[1:]))
