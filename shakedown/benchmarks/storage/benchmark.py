"""Disks and shared file systems by fio: a job for each folder, with a task on each node."""

from itertools import permutations
from pathlib import PurePosixPath

from shakedown.benchmarks.base.contract import Benchmark, JobKind, NotAtNight, Parser, Tool, by_module
from shakedown.benchmarks.storage.job import CHECK, lasts_s, steps
from shakedown.benchmarks.storage.output import StoragePath, StorageSettings, storage
from shakedown.intent.acceptance import Section
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.records.base import Better, Params, Stage
from shakedown.records.reading import BadInput, ExitStatus

WRONG = none_allowed("storage.wrong", "what is read is what was written")
_RANDOM = (("iops", "IO/s", Better.HIGHER), ("latency_p99", "us", Better.LOWER))
_SEQUENCE = (("bandwidth", "GB/s", Better.HIGHER),)


def plan_storage(draft: PlanDraft, asked: tuple[StoragePath, ...]) -> None:
    """Every access to every folder, from all nodes at once and, where it is shared, from each alone.

    Raises BadInput: two folders have one name, or one lies in the other.
    """
    names = [one.name for one in asked]
    if twice := {name for name in names if names.count(name) > 1}:
        raise BadInput(
            f"acceptance.storage names {min(twice)} twice", fix="give each folder a name of its own"
        )
    for one, other in permutations(asked, 2):
        if PurePosixPath(other.path).is_relative_to(one.path):
            what = f"acceptance.storage: {other.name} ({other.path}) lies in {one.name} ({one.path})"
            raise BadInput(what, fix="measure each file system once")
    for one in asked:
        settings = StorageSettings(**one.model_dump(), turns=draft.nodes if one.shared else ())
        order = settings.model_dump()
        done = dict.fromkeys((access, clients) for _, access, clients, _ in steps(order))
        for access, clients in done:
            params: Params = {"path": one.name, "access": access, "clients": clients}
            if access == CHECK:
                draft.forbid(WRONG, "storage", nodes=draft.nodes, params=params)
            for metric, *_ in measured(access):
                nodes = len(draft.nodes) if clients == "all" else 1
                scope: dict[str, int | str] = {"path": one.name, "operation": access, "nodes": nodes}
                entry = draft.reference("storage", metric, scope)
                draft.add(entry, "storage", nodes=draft.nodes, params=params)
        expected_s = round(lasts_s(order))
        draft.job(
            f"node.storage.{one.name}",
            kind="storage",
            tests=("storage",),
            time_limit_s=expected_s + 120,
            expected_s=expected_s,
            settings=order,
        )


def measured(access: str) -> tuple[tuple[str, str, Better], ...]:
    """Return what an access is measured by: metric, unit, direction."""
    if access in ("write", "read"):
        return _SEQUENCE
    return _RANDOM if access.startswith("rand") else ()


BENCHMARK = Benchmark(
    name="storage",
    stage=Stage.NODE,
    section=Section(key="storage", kind=tuple[StoragePath, ...], absent=()),
    plan=plan_storage,
    night=NotAtNight("it writes many gigabytes to what others may be using"),
    jobs={
        "storage": JobKind(
            catches="a slow or worn disk, a mount that is missing or goes over the wrong network, a file "
            "system that one node reaches more slowly, data that are not read as they were written",
            order=StorageSettings.model_validate,
            launch=by_module("shakedown.benchmarks.storage.job"),
            uses=("fio",),
            # A node without a value has its reason; the others are good.
            also_good=ExitStatus.INCOMPLETE.value,
            wait_s=0,  # nodes end at different times
            each_node=True,
        )
    },
    tools={"fio": Tool(metrics=storage, own_bytes=bool)},
    parsers=(Parser(tool="fio", module="shakedown.benchmarks.storage.output", function="parse_fio"),),
    words={"storage": "storage"},
    measures={("storage", metric): (unit, better) for metric, unit, better in (*_SEQUENCE, *_RANDOM)},
)
