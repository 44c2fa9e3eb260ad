"""A plan being made. A cell without a reference is refused here, never passed."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from shakedown.intent.site import Fabric, Site
from shakedown.plan.jobs import JobSpec
from shakedown.plan.scope import Mesh
from shakedown.records.base import Better, Stage
from shakedown.records.pairs import AllPairs, PairsAcross
from shakedown.records.plan import NotCovered, PlanItem, Reference, ReferenceKind
from shakedown.records.reading import BadInput
from shakedown.records.wording import natural_key
from shakedown.references.catalogue import Catalogue, MissingReference, ReferenceEntry
from shakedown.references.propose import Kind, learnt_entry


def none_allowed(name: str, source: str, **otherwise: Any) -> Reference:  # noqa: ANN401
    """Return a contract that allows none of what is counted, and who says so; or what is said otherwise."""
    count = {"value": 0, "limit": 0, "unit": "1", "better": Better.LOWER, "kind": ReferenceKind.CONTRACT}
    return Reference.model_validate({**count, "id": name, "source": source, **otherwise})


_STAND_IN = ReferenceEntry(
    id="none",
    stage=Stage.CONFIG,
    test="none",
    metric="none",
    value=0,
    limit=0,
    unit="1",
    better=Better.LOWER,
    kind=ReferenceKind.CONTRACT,
    source="no reference",
)


Nodes = Iterable[str | tuple[str, ...]] | AllPairs | PairsAcross


def _groups(nodes: Iterable[str | tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    return tuple((each,) if isinstance(each, str) else each for each in nodes)


@dataclass
class PlanDraft:
    """A plan being made."""

    site: Site
    catalogue: Catalogue
    items: list[PlanItem] = field(default_factory=list)
    references: dict[str, Reference] = field(default_factory=dict)
    jobs: list[JobSpec] = field(default_factory=list)
    # Cells without a reference, by what is said of them. Planning goes on, so that all are told at once.
    missing: dict[str, MissingReference] = field(default_factory=dict)
    learn: bool = False  # cells without a reference are measured to make one of, and not judged
    # What benchmarks measure that no shipped profile has, by test and metric, for a run that learns.
    unpublished: Mapping[tuple[str, str], Kind] = field(default_factory=dict)
    mesh: Mesh | None = None  # which pairs are measured, over what the site asks
    # What the plan does not cover, beside what the site says itself.
    caveats: list[str] = field(default_factory=list)
    stage: Stage = Stage.CONFIG  # of the benchmark that plans now: of what it adds
    # Tests whose jobs measure again what lies outside its gate (records.plan.Remeasure).
    remeasured: list[str] = field(default_factory=list)
    not_covered: list[NotCovered] = field(default_factory=list)  # parts of a test that the site leaves out
    pieces: dict[str, set[str]] = field(default_factory=dict)  # tests of each piece, planned or left out
    # It is of a part of a site whose whole can be planned: what the part is too small for is left out.
    too_small: bool = False

    def blank(self, **changes: Any) -> Self:  # noqa: ANN401
        """Return a draft like this one, but for the changes, with nothing in it yet."""
        made: dict[str, Any] = {
            "items": [],
            "references": {},
            "jobs": [],
            "missing": {},
            "caveats": [],
            "remeasured": [],
        }
        return replace(self, **{**made, "not_covered": [], "pieces": {}, **changes})

    @property
    def nodes(self) -> tuple[str, ...]:
        """All compute nodes in natural order."""
        return tuple(sorted(self.site.nics, key=natural_key))

    @property
    def rails(self) -> tuple[str, ...]:
        """All rails in order."""
        return tuple(rail.name for rail in self.site.fabric.rails)

    def reference(
        self, test: str, metric: str, scope: Mapping[str, int | str], node: str | None = None
    ) -> ReferenceEntry:
        """Find the reference of a cell and keep it for the plan; `node`: it is of this one alone.

        Where there is none, the plan is refused in the end, and what is returned stands in until then.
        """
        try:
            return self._find(test, metric, scope, node)
        except MissingReference as refused:
            if self.learn:
                entry = learnt_entry(test, metric, scope, self.unpublished)
                if entry is not None:
                    self.references[entry.id] = entry.reference()
                    return entry
            self.missing.setdefault(refused.what, refused)
            return _STAND_IN.model_copy(update={"test": test, "metric": metric})

    @contextmanager
    def piece(self, what: str, key: str) -> Iterator[None]:
        """Plan something by itself: where the part of the site is too small for it, it is left out and told.

        `what` it is, for a person; `key` of acceptance that asks for it. Of a whole site nothing is left out.
        """
        if not self.too_small:
            before = len(self.items)
            yield
            self.pieces.setdefault(what, set()).update(item.test for item in self.items[before:])
            return
        lists = (self.items, self.jobs, self.caveats, self.remeasured, self.not_covered)
        lengths, missing, references = [len(one) for one in lists], dict(self.missing), dict(self.references)
        try:
            yield
            new = [refused.what for name, refused in self.missing.items() if name not in missing]
        except BadInput as refused:
            new = [refused.what]
        if new:
            self.pieces[what] = {item.test for item in self.items[lengths[0] :]}
            for one, length in zip(lists, lengths, strict=True):
                del one[length:]  # type: ignore[attr-defined]  # a list of lists of several kinds
            self.missing, self.references = missing, references
            why = f"the whole site has it, this part cannot: {new[0]}"
            self.not_covered.append(NotCovered(what=what, why=why, key=f"acceptance.{key}"))

    def do_without(self, missing: dict[str, MissingReference]) -> None:
        """Let only these references be missing: what else is, is of cells that the plan will not keep."""
        if len(self.missing) > len(missing):
            self.missing = missing
            self.references[_STAND_IN.id] = _STAND_IN.reference()

    def reference_if_any(
        self, test: str, metric: str, scope: Mapping[str, int | str], node: str | None = None
    ) -> ReferenceEntry | None:
        """Find the reference of a cell that need not have one, and keep it for the plan."""
        try:
            return self._find(test, metric, scope, node)
        except MissingReference:
            return None

    def _find(
        self, test: str, metric: str, scope: Mapping[str, int | str], node: str | None
    ) -> ReferenceEntry:
        facts: dict[str, int | str] = {"system": self.site.fabric.system}
        if isinstance(self.site.fabric, Fabric):
            facts["nic_speed_gbps"] = self.site.fabric.link_speed_gbps
            facts["rdma_mtu_bytes"] = self.site.fabric.mtu_bytes.rdma
        facts |= self.site.acceptance.scope if node is None else self.site.of(node).scope
        entry = self.catalogue.find(test=test, metric=metric, scope={**facts, **scope})
        self.references[entry.id] = entry.reference()
        return entry

    # What else a block or a job has (`more`) is said and checked by PlanItem and JobSpec.

    def add(
        self,
        entry: ReferenceEntry,
        test: str,
        *,
        nodes: Nodes,  # of each cell, its one node or those that it is measured on together
        required: bool = True,
        **more: Any,  # noqa: ANN401
    ) -> None:
        """Add a block of cells; the reference may keep them from being required.

        `not_run`: why it will not be measured; if it is required, the verdict waits for it all the same.
        """
        more = {"if_reported": entry.if_reported, **more}
        self._put(entry, test, entry.metric, nodes, required=required and entry.gates, **more)

    def forbid(
        self,
        reference: Reference,
        test: str,
        *,
        nodes: Nodes,
        metric: str = "wrong",
        required: bool = True,
        not_run: str = "",  # why it cannot be counted; the verdict then does not wait for it
        **more: Any,  # noqa: ANN401
    ) -> None:
        """Add a block of cells that count something, held to a contract such as `none_allowed`."""
        self.references[reference.id] = reference
        required = required and not not_run
        self._put(reference, test, metric, nodes, required=required, not_run=not_run, **more)

    def _put(
        self,
        held: Reference | ReferenceEntry,
        test: str,
        metric: str,
        nodes: Nodes,
        **more: Any,  # noqa: ANN401
    ) -> None:
        groups = nodes if isinstance(nodes, AllPairs | PairsAcross) else _groups(nodes)
        if not len(groups):
            raise BadInput(
                f"{test} takes more nodes than {len(self.nodes)}", fix="name more, or leave it out"
            )
        of: dict[str, Any] = {"unit": held.unit, "better": held.better, "reference": held.id}
        more = {"stage": self.stage, **more, "not_run": more.get("not_run") or None}
        self.items.append(PlanItem(test=test, metric=metric, nodes=groups, **of, **more))

    def job(self, name: str, *, nodes: tuple[str, ...] = (), **more: Any) -> None:  # noqa: ANN401
        """Add a job, of all nodes where it names none."""
        self.jobs.append(JobSpec(name=name, stage=self.stage, nodes=nodes or self.nodes, **more))
