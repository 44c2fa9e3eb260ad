"""A plan being made. A cell without a reference is refused here, never passed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shakedown.intent.site import Fabric, Site
from shakedown.plan.jobs import JobSpec
from shakedown.plan.scope import Mesh
from shakedown.records.base import Better, Params, Stage
from shakedown.records.pairs import AllPairs, PairsAcross
from shakedown.records.plan import NotCovered, PlanItem, Reference, ReferenceKind
from shakedown.records.wording import natural_key
from shakedown.references.catalogue import Catalogue, MissingReference, ReferenceEntry
from shakedown.references.propose import Kind, learnt_entry


def none_allowed(name: str, source: str) -> Reference:
    """Return a contract that allows none of what is counted, and who says so."""
    return Reference(
        id=name, value=0, limit=0, unit="1", better=Better.LOWER, kind=ReferenceKind.CONTRACT, source=source
    )


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


def _cells(nodes: Iterable[str | tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
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

    def add(
        self,
        entry: ReferenceEntry,
        test: str,
        *,
        nodes: Iterable[str | tuple[str, ...]] | AllPairs | PairsAcross,
        stage: Stage | None = None,
        rails: tuple[str | None, ...] = (None,),
        directions: tuple[str | None, ...] = (None,),
        params: Params | None = None,
        required: bool = True,
        not_run: str = "",
    ) -> None:
        """Add a block of cells; the reference may keep them from being required.

        `nodes`: of each cell, its one node or those that it is measured on together.
        `not_run`: why it will not be measured; if it is required, the verdict waits for it all the same.
        """
        self.items.append(
            PlanItem(
                stage=stage or self.stage,
                test=test,
                metric=entry.metric,
                unit=entry.unit,
                better=entry.better,
                nodes=nodes if isinstance(nodes, AllPairs | PairsAcross) else _cells(nodes),
                rails=rails,
                directions=directions,
                params=params or {},
                reference=entry.id,
                required=required and entry.gates,
                if_reported=entry.if_reported,
                not_run=not_run or None,
            )
        )

    def job(
        self,
        name: str,
        *,
        kind: str,
        tests: tuple[str, ...],
        time_limit_s: int,
        settings: dict[str, Any],
        nodes: tuple[str, ...] = (),
        expected_s: int | None = None,
        expected_from: str = "",
        params: Params | None = None,
        whole: bool = False,
    ) -> None:
        """Add a job, of all nodes where it names none; what else it says is as `JobSpec` has it."""
        self.jobs.append(
            JobSpec(
                name=name,
                kind=kind,
                stage=self.stage,
                tests=tests,
                nodes=nodes or self.nodes,
                time_limit_s=time_limit_s,
                expected_s=expected_s,
                expected_from=expected_from,
                settings=settings,
                params=params or {},
                whole=whole,
            )
        )

    def forbid(
        self,
        reference: Reference,
        test: str,
        *,
        nodes: Iterable[str | tuple[str, ...]],
        rails: tuple[str | None, ...] = (None,),
        directions: tuple[str | None, ...] = (None,),
        params: Params | None = None,
        metric: str = "wrong",
        required: bool = True,
        not_run: str = "",
    ) -> None:
        """Add a block of cells that count something, held to a contract such as `none_allowed`.

        `not_run`: why it cannot be counted; the plan then holds it, and the verdict does not wait for it.
        """
        self.references[reference.id] = reference
        self.items.append(
            PlanItem(
                stage=self.stage,
                test=test,
                metric=metric,
                unit=reference.unit,
                better=reference.better,
                nodes=_cells(nodes),
                rails=rails,
                directions=directions,
                params=params or {},
                reference=reference.id,
                required=required and not not_run,
                not_run=not_run or None,
            )
        )
