"""The certificate: each criterion of a contract, answered by the cells of sealed runs.

A folder sealed like a bundle: the criteria as they were given, the record, and the page to sign. Every run is
verified and judged anew. What passed counts only where the plan requires it, what did not pass counts always.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from markupsafe import Markup
from pydantic import ValidationError

from shakedown.collect.run import difference
from shakedown.evidence import orders
from shakedown.evidence.attribution import order_findings
from shakedown.intent.places import parse_strict, problems_of
from shakedown.judge.cells import Rule
from shakedown.judge.judged import judge_run
from shakedown.judge.several_cells import AGAIN
from shakedown.judge.verdict import Judged, decides
from shakedown.records.base import Outcome, tally, to_json
from shakedown.records.plan import Plan, PlanItem, Reference, cell_pattern
from shakedown.records.program import no_cycle_search
from shakedown.records.reading import BadInput, read_bytes, read_record
from shakedown.records.results import Snapshot
from shakedown.records.verdict import Answer, CellVerdict, Certificate, CertifiedRun, Criteria, Criterion, Met
from shakedown.records.wording import clipped, count, in_unit, number, those
from shakedown.records.writing import write_aside
from shakedown.report import seal as bundle
from shakedown.report.html import TEMPLATES, environment, print_pdf
from shakedown.report.seal import Verification, differs
from shakedown.report.source import margin
from shakedown.run.folder import ORDER, PLAN, SUMS, Run

CERTIFICATE, PAGE, CRITERIA = "certificate.json", "certificate.html", "criteria.yml"
_FILES = (CERTIFICATE, PAGE, CRITERIA)
_MOST = 260  # characters of what one cell or finding says


def read_criteria(path: Path) -> Criteria:
    """Read a contract's criteria. Raises BadInput: names file, line and key."""
    document, lines = parse_strict(path)
    if not isinstance(document, dict):
        raise BadInput("must be keys with values", fix="begin with schema: 1", file=path, line=1)
    try:
        criteria = Criteria.model_validate(document)
    except ValidationError as error:
        first = problems_of(error, Criteria, ())[0]
        places = (first.key[:depth] for depth in range(len(first.key), -1, -1))
        line = next((lines[at] for at in places if at in lines), 1)
        raise BadInput(first.what, fix=first.fix, file=path, line=line) from None
    ids = [criterion.id for criterion in criteria.criteria]
    for at, name in enumerate(ids):
        if name in ids[:at]:
            line = lines["criteria", at, "id"]
            raise BadInput(f"two criteria are {name!r}", fix="give each an id", file=path, line=line)
    return criteria


# What one run has.


@dataclass
class _Kind:
    """What was found of one test and metric."""

    item: PlanItem
    loosest: Reference
    cells: int = 0
    nodes: set[str] = field(default_factory=set)  # of the site, on which one passed
    worst: tuple[float, float] | None = None  # its margin to its gate, and the value

    def __str__(self) -> str:
        on = f" on {count(len(self.nodes), 'node')}" if self.nodes else ""
        what = f"{self.item.test} {self.item.metric}, {count(self.cells, 'cell')}{on}"
        worst = in_unit(number(self.worst[1]), self.item.unit) if self.worst else "no value"
        asked = orders.asked(self.loosest) if self.loosest.gate else "none allowed"
        return f"{what}: {worst} at worst, {asked}"


def _loosest_first(kind: _Kind) -> tuple[bool, bool, float]:
    """Sort rates by the share of what is possible that is asked, then the others, then counts of none."""
    gate = kind.loosest
    return not gate.gate, not gate.ceiling, orders.strictness(gate)


@dataclass
class _Found:
    """What one run has for one criterion."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    matched: set[int] = field(default_factory=set)  # patterns, by number
    answered: dict[int, set[str]] = field(default_factory=dict)  # where required cells of each passed
    rails: dict[int, set[str]] = field(default_factory=dict)  # and on which rails
    asides: Counter[str] = field(default_factory=Counter)  # what a reader of MET must still hear of
    first: dict[Outcome, str] = field(default_factory=dict)  # what the first cell of an outcome says
    kinds: dict[tuple[str, str, str], _Kind] = field(default_factory=dict)

    def add(
        self,
        cell: CellVerdict,
        item: PlanItem,
        nodes: frozenset[str],
        rail: str | None,
        plan: Plan,
        at: set[int],
    ) -> None:
        """Count a cell that these patterns match."""
        self.matched |= at
        if cell.rule == Rule.NOT_REPORTED:
            self.asides["not reported by its device"] += 1
            return
        self.outcomes[cell.outcome] += 1
        self.first.setdefault(cell.outcome, cell.reason)
        reference = plan.references[item.reference]
        kind = self.kinds.setdefault((item.stage, item.test, item.metric), _Kind(item, reference))
        if not item.required:
            self.asides["not required by the plan"] += 1
        elif cell.outcome is Outcome.PASS:
            for pattern in at:
                self.answered.setdefault(pattern, set()).update(nodes)
                self.rails.setdefault(pattern, set()).update(rail.split(">") if rail else ())
            kind.nodes |= nodes
            self.asides["passed only when measured again"] += cell.rule in AGAIN
        kind.cells += 1
        kind.loosest = min(kind.loosest, reference, key=orders.strictness)
        if cell.value is not None and cell.gate is not None:
            near = margin(cell.value, cell.gate, item.better)
            kind.worst = min(kind.worst or (near, cell.value), (near, cell.value))


@dataclass(frozen=True)
class Look:
    """A run that was verified and judged anew."""

    folder: Path
    run: CertifiedRun
    whole: bool  # of all nodes, rails and pairs of its site, as far as its stages go
    names: frozenset[str]  # nodes
    rails: frozenset[str]
    ended: str  # the start of its last job
    evidence: frozenset[str]  # digests of what Slurm and the nodes said of each job
    machines: dict[str, str]  # machine ids of nodes, as far as its snapshot tells
    found: tuple[_Found, ...]  # for each criterion


def look_at(folder: Path, criteria: Criteria, signers: Path | None) -> tuple[Verification, Look | None]:
    """Verify and judge a sealed run anew; without a look if it is not as sealed. Raises BadInput."""
    seen: list[Look] = []

    def look(copy: Path, signer: str | None, recorded: dict[str, str]) -> None:
        with no_cycle_search():
            judged = judge_run(Run(copy))
        plan, verdict, scope = judged.run.plan, judged.verdict, judged.run.plan.scope
        found = tuple(_Found() for _ in criteria.criteria)
        unasked = _match(plan, judged.cells, criteria, found)
        doubts, who = list(verdict.problems), ""
        if verdict.unplanned:
            doubts.append(f"it measured {count(len(verdict.unplanned), 'cell')} that its plan has not")
        evidence = frozenset(sha for name, sha in recorded.items() if _OF_A_JOB.fullmatch(name))
        if ordered := ORDER in recorded:
            order, content, signed = orders.read(copy / ORDER, signers)
            unlike, who = list(order_findings(copy, order, content, recorded)), signed or ""
            doubts[:0] = (
                [f"{count(len(unlike), 'finding')}: not as ordered, first {unlike[0]}"] if unlike else []
            )
        machines = _machines(judged.run.snapshot)
        untold = (
            () if machines else ("which machines these were is not told: its snapshot has no machine ids",)
        )
        began = sorted(job.started for job in judged.run.ran if job.started)
        run = CertifiedRun(
            run=plan.run,
            system=plan.system,
            profile=plan.profile,
            sums=orders.digest(read_bytes(copy / SUMS)),
            signer=signer or "",
            planned=plan.created,
            measured=" to ".join(dict.fromkeys((began[0], began[-1]))) if began else "at an unknown time",
            nodes=len(plan.nodes),
            of_nodes=scope.of_nodes if scope else len(plan.nodes),
            scope=scope.words if scope else "the whole site",
            outcome=verdict.outcome,
            reason=verdict.reason,
            order=("not as ordered" if unlike else "as ordered") if ordered else "not ordered",
            ordered_by=who,
            doubts=tuple(doubts),
            waivers=tuple(f"{w.name} for {w.cells}, {w.words}" for w in plan.waivers),
            exclusions=(*_exclusions(plan, len(verdict.unplanned)), *untold),
            gates=tuple(orders.gates(copy)),
            unasked=tally(unasked),
        )
        of = (scope.of_nodes, scope.of_rails, None) if scope else ()
        whole = not scope or of == (len(scope.nodes), len(scope.rails), scope.mesh)
        names, rails = frozenset(plan.nodes), frozenset(plan.rails)
        seen.append(Look(folder, run, whole, names, rails, (began or [""])[-1], evidence, machines, found))

    return bundle.verify(folder, signers, look=look), seen[0] if seen else None


_OF_A_JOB = re.compile(r"raw/[^/]+/(?:job\.json|outputs[^/]*\.jsonl)")


def _machines(snapshot: Snapshot | None) -> dict[str, str]:
    """Return the machine id of each node; one that two nodes have, made from one image, is none."""
    parts = snapshot.components if snapshot else ()
    found = {p.host: p.attributes.get("machine_id", "") for p in parts if p.kind == "node"}
    times = Counter(found.values())
    return {host: machine for host, machine in found.items() if machine and times[machine] == 1}


def _match(plan: Plan, judged: Judged, criteria: Criteria, found: Sequence[_Found]) -> Counter[Outcome]:
    """Give each criterion its cells; return the outcomes of the required ones that none asks for."""
    unasked: Counter[Outcome] = Counter()
    patterns = [[cell_pattern(text) for text in criterion.cells] for criterion in criteria.criteria]
    of_site = frozenset(plan.nodes)
    for block in judged.items:
        for cell, (_, nodes, rail, _) in zip(block.cells, block.item.cells(), strict=True):
            asked_for = False
            for mine, theirs in zip(found, patterns, strict=True):
                if at := {place for place, one in enumerate(theirs) if one.fullmatch(cell.cell)}:
                    mine.add(cell, block.item, of_site.intersection(nodes), rail, plan, at)
                    asked_for = True
            if not asked_for and decides(cell, block.item):
                unasked[cell.outcome] += 1
    return unasked


def _exclusions(plan: Plan, unplanned: int) -> Iterator[str]:
    yield from (f"not covered: {left.what}: {left.why}" for left in plan.not_covered)
    not_run: Counter[str] = Counter()
    for item in plan.items:
        if item.not_run:
            not_run[f"{item.stage} {item.test}: {item.not_run}"] += len(item)
    yield from (f"not run: {count(cells, 'cell')} of {what}" for what, cells in not_run.items())
    if aside := sum(len(item) for item in plan.items if not item.required):
        yield f"not required: {count(aside, 'cell')} of its plan"
    if unplanned:
        yield f"not counted: {count(unplanned, 'cell')} measured without being planned"
    yield from plan.caveats


# The answers.


def build(criteria: Criteria, sha256: str, looks: Sequence[Look], certified: str) -> Certificate:
    """Answer the criteria. Raises BadInput: runs that do not belong together, or have none of the cells.

    Args:
        criteria: the contract's, and
        sha256: of their file.
        looks: the runs; their order does not matter.
        certified: when, RFC 3339, UTC.
    """
    looks = sorted(looks, key=lambda look: (look.run.planned, look.run.run))
    runs = tuple(_of_one_cluster(looks, certified))
    looks = [replace(look, run=run) for look, run in zip(looks, runs, strict=True)]
    if not any(mine.matched for look in looks for mine in look.found):
        raise BadInput(
            f"no criterion names a cell of {those([look.run.run for look in looks], 'run')}",
            fix="write STAGE/TEST/METRIC/NODES/... with *; shakedown export lists every cell",
        )
    names = frozenset[str]().union(*(look.names for look in looks))
    site = max(len(names), *(look.run.of_nodes for look in looks))
    answers = tuple(
        _answer(criterion, [(look, look.found[at]) for look in looks], site)
        for at, criterion in enumerate(criteria.criteria)
    )
    stamp, reason = _whole(runs, answers)
    about = {"contract": criteria.contract, "criteria": sha256, "certified": certified}
    about |= {"system": runs[0].system, "stamp": stamp, "reason": reason}
    return Certificate.model_validate({**about, "nodes": site, "runs": runs, "answers": answers})


def _of_one_cluster(looks: Sequence[Look], certified: str) -> Iterator[CertifiedRun]:
    """Yield the runs, with what is unlike the earlier ones. Raises BadInput: of another cluster, or twice."""
    first, names, known = looks[0], set[str](), dict[str, str]()
    taken: dict[str, str] = {}  # whose measurements were met already
    for look in looks:
        if look.run.system != first.run.system:
            what = f"is of {look.run.system}, and {first.folder} of {first.run.system}"
            raise BadInput(what, fix="certify each cluster by itself", file=look.folder / PLAN)
        if look.run.run in names:
            raise BadInput(f"run {look.run.run} is given twice", fix="give each run once", file=look.folder)
        names.add(look.run.run)
        both = sorted(known.keys() & look.machines.keys())
        if both and not any(known[node] == look.machines[node] for node in both):
            what = f"{both[0]} and all others are other machines than those of that name in {first.folder}"
            raise BadInput(what, fix="certify each cluster by itself", file=look.folder)
        for node, machine in look.machines.items():
            known.setdefault(node, machine)
        unlike = [n for n, machine in look.machines.items() if known[n] != machine]
        told = [f"another machine, or installed anew, since an earlier run: {those(unlike, 'node')}"]
        of = sorted({taken[sha] for sha in look.evidence & taken.keys()})
        doubts = [f"it holds measurements of {those(of, 'run')}"] if of else []
        doubts += [f"it was measured at {look.ended}, after this"] if look.ended[:19] > certified[:19] else []
        taken |= dict.fromkeys(look.evidence, look.run.run)
        exclusions = (*look.run.exclusions, *(told if unlike else ()))
        yield look.run.model_copy(update={"exclusions": exclusions, "doubts": (*look.run.doubts, *doubts)})


def _answer(criterion: Criterion, found: Sequence[tuple[Look, _Found]], site: int) -> Answer:
    whole = _Found()
    measured: dict[str, None] = {}
    for _, mine in found:
        whole.outcomes += mine.outcomes
        whole.asides += mine.asides
        whole.matched |= mine.matched
        for pattern, on in mine.answered.items():
            whole.answered.setdefault(pattern, set()).update(on)
            whole.rails.setdefault(pattern, set()).update(mine.rails[pattern])
        kinds = sorted(mine.kinds.values(), key=_loosest_first)
        measured |= dict.fromkeys(map(str, kinds))
    answer, reason = _decided(criterion, [(x, mine) for x, mine in found if mine.matched], whole, site)
    return Answer(
        id=criterion.id,
        text=criterion.text,
        answer=answer,
        reason=reason + "".join(f"; {count(cells, 'cell')} {what}" for what, cells in whole.asides.items()),
        outcomes=tally(whole.outcomes),
        nodes=len(set[str]().union(*whole.answered.values())),
        measured=tuple(measured),
    )


def _decided(
    criterion: Criterion, having: Sequence[tuple[Look, _Found]], whole: _Found, site: int
) -> tuple[Met, str]:
    """Return the answer and why."""
    if against := next(_against(criterion, having, whole), None):
        return against
    cells = f"{count(whole.outcomes.total(), 'cell')} passed"
    on_nodes = [pattern for pattern, nodes in whole.answered.items() if nodes]
    if not on_nodes:
        return Met.MET, f"{cells}, of no compute node"
    for pattern in on_nodes:  # each by itself: what covers every node must not stand in for what does not
        on_all = [x for x in having if x[0].whole and len(x[1].answered.get(pattern, ())) == site]
        if not on_all:
            of = f"{criterion.cells[pattern]} on {len(whole.answered[pattern])} of {count(site, 'node')}"
            return Met.IN_PART, f"{cells}; {of}, in no run of the whole site"
        if not any(mine.rails[pattern] in (set(), look.rails) for look, mine in on_all):
            of = f"{criterion.cells[pattern]} on {those(sorted(whole.rails[pattern]), 'rail')} alone"
            return Met.IN_PART, f"{cells}; {of}, not on every rail in one run"
    return Met.MET, f"{cells}, on all {count(site, 'node')}"


def _against(
    criterion: Criterion, having: Sequence[tuple[Look, _Found]], whole: _Found
) -> Iterator[tuple[Met, str]]:
    """Yield what speaks against MET: what failed first, then what is open."""
    for outcome, (met, how) in _BAD.items():
        if whole.outcomes[outcome]:
            theirs = [(look, mine) for look, mine in having if mine.outcomes[outcome]]
            of = f"{whole.outcomes[outcome]} of {count(whole.outcomes.total(), 'cell')} {how}"
            where = those([look.run.run for look, _ in theirs], "run")
            yield met, f"{of} in {where}, first: {clipped(theirs[0][1].first[outcome], _MOST)}"
    for place, pattern in enumerate(criterion.cells):
        if place not in whole.matched:
            yield Met.UNANSWERED, f"no cell of any run is {pattern}"
        elif place not in whole.answered:
            yield Met.UNANSWERED, f"no cell that a plan requires and that passed is {pattern}"
    for look, _ in having:
        if look.run.doubts:
            yield Met.UNANSWERED, clipped(f"run {look.run.run} is in doubt: {look.run.doubts[0]}", _MOST)
    answering = {look.run.run for look, mine in having if mine.answered}
    for name in criterion.runs:
        if name not in answering:
            yield Met.UNANSWERED, f"run {name} must answer it, and is not given or has no such cell"


_BAD = {
    Outcome.FAIL: (Met.FAILED, "failed"),
    Outcome.INCONCLUSIVE: (Met.UNANSWERED, "undecided"),
    Outcome.NOT_RUN: (Met.UNANSWERED, "not run"),
    Outcome.BASELINE: (Met.UNANSWERED, "measured and not judged"),
    Outcome.WAIVED: (Met.WAIVED, "failed and are waived"),
}


def _whole(runs: Sequence[CertifiedRun], answers: Sequence[Answer]) -> tuple[str, str]:
    """Return the stamp and its sentence: they follow from what stands below them."""
    ids = {met: [answer.id for answer in answers if answer.answer is met] for met in Met}
    parts = [f"{len(ids[Met.MET])} of {len(answers)} criteria met"]
    others = (Met.FAILED, Met.UNANSWERED, Met.WAIVED, Met.IN_PART)
    parts += [f"{met.value}: {', '.join(ids[met])}" for met in others if ids[met]]
    bad = [run for run in runs if run.outcome is not Outcome.PASS or run.doubts]
    parts += [f"run {r.run} as a whole is {r.outcome.value}" + ", and in doubt" * bool(r.doubts) for r in bad]
    if ids[Met.FAILED]:
        stamp = "FAILED"
    elif ids[Met.UNANSWERED] or ids[Met.WAIVED]:
        stamp = "NOT ALL MET"
    else:
        stamp = "ALL MET" if len(parts) == 1 else "MET WITH RESERVATIONS"
    return stamp, "; ".join(parts)


def render(certificate: Certificate) -> str:
    """Return the page."""
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    shown = {"made": certificate, "style": Markup(style), "sha256": orders.digest(to_json(certificate))}  # noqa: S704
    return environment().get_template("certificate.html.j2").render(shown)


# The folder.


def certify(
    runs: Sequence[Path], criteria: Path, output: Path, key: Path, signers: Path, pdf: Path | None = None
) -> Certificate:
    """Answer the criteria by sealed runs, write the sealed certificate, and print it to `pdf`.

    Raises BadInput: criteria or runs that cannot be used, or a folder that is there already.
    """
    if os.path.lexists(output):
        raise BadInput("is there already", fix="name a new folder with --output", file=output)
    if pdf is not None and os.path.lexists(pdf):
        raise BadInput("is there already", fix="print to a new file", file=pdf)
    for x, sealed in ((x, y) for x in (output, pdf) if x for y in (*runs, output) if x is not y):
        if x.resolve().is_relative_to(sealed.resolve()):
            raise BadInput(f"would lie in {sealed}, which is sealed", fix="name a place beside it", file=x)
    wanted, content, looks = read_criteria(criteria), read_bytes(criteria.resolve()), list[Look]()
    for folder in runs:
        if not os.path.lexists(folder / SUMS):
            raise BadInput("is not a sealed run", fix=f"run shakedown seal {folder}", file=folder)
        found, look = look_at(folder, wanted, signers)
        if look is None:
            fix = "take a trusted copy, or collect, judge and seal it again"
            raise BadInput(found.reason, fix=fix, file=folder / (found.differs or ""))
        looks.append(look)
    try:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        made = build(wanted, orders.digest(content), looks, now)
    except BadInput as refused:
        raise BadInput(refused.what, fix=refused.fix, file=refused.file or criteria) from None
    output.mkdir(parents=True)
    try:
        for name, text in ((CRITERIA, content), (CERTIFICATE, to_json(made)), (PAGE, render(made).encode())):
            write_aside(output / name, text)
        bundle.write_seal(output, sorted(_FILES), key)
    except BaseException:
        shutil.rmtree(output)
        raise
    if pdf is not None:
        print_pdf(output / PAGE, pdf)
    return made


def verify(folder: Path, signers: Path | None, runs: Sequence[Path] = ()) -> Verification:
    """Check a certificate's seal and page and, with the runs, answer every criterion again.

    Without the runs nothing is derived: what its signer says of them is only said. Raises BadInput.
    """

    def held(copy: Path, signer: str | None, recorded: dict[str, str]) -> Verification:
        for name in sorted({*recorded} ^ {*_FILES}):
            return differs(name, f"{name} is {'no file of a certificate' if name in recorded else 'missing'}")
        made, criteria = read_record(copy / CERTIFICATE, Certificate), read_criteria(copy / CRITERIA)
        for name, flaw in _flaws(copy, made, criteria):
            return differs(name, flaw)
        looks: list[Look] = []
        for run in runs:
            found, look = look_at(run, criteria, signers)
            if look is None:
                return differs(str(run / (found.differs or "")), f"run {run}: {found.reason}")
            looks.append(look)
        again = build(criteria, made.criteria, looks, made.certified) if looks else made
        if signers is None and len(again.runs) == len(made.runs):  # nobody is named, so nobody is held
            pairs = zip(again.runs, made.runs, strict=True)
            new = [a.model_copy(update={"signer": m.signer, "ordered_by": m.ordered_by}) for a, m in pairs]
            again = again.model_copy(update={"runs": tuple(new)})
        if how := difference(to_json(made), to_json(again)):
            return differs(CERTIFICATE, f"{CERTIFICATE} is not what these runs give: {how}")
        said = f"certificate of {count(len(made.runs), 'run')}, {made.stamp}: {made.reason}; "
        said += "every criterion answered again" if runs else "not held against its runs: give --runs"
        said += f", signed by {signer}" if signer else "; the signer was not checked: give --signers"
        return Verification(None, said, signer, None, derived=bool(runs))

    return bundle.as_sealed(folder, signers, held)


def _flaws(copy: Path, made: Certificate, criteria: Criteria) -> Iterator[tuple[str, str]]:
    """Yield each file of a certificate that does not follow from the others, and how."""
    texts = [[(c.id, c.text) for c in all_of] for all_of in (criteria.criteria, made.answers)]
    head = (criteria.contract, orders.digest(read_bytes(copy / CRITERIA)))
    if texts[0] != texts[1] or (made.contract, made.criteria) != head:
        yield CERTIFICATE, f"{CERTIFICATE} is of other criteria than {CRITERIA}"
    if (made.stamp, made.reason) != _whole(made.runs, made.answers):
        yield CERTIFICATE, f"{CERTIFICATE} does not sum up its own answers"
    if read_bytes(copy / PAGE) != render(made).encode():
        yield PAGE, f"{PAGE} is not what this release makes of {CERTIFICATE}"
