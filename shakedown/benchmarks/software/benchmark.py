"""The site's software on every node: is it there, does it run, is it the same everywhere."""

from typing import get_args

from shakedown.benchmarks.base.contract import Benchmark, EveryNight, JobKind, Tool, by_module
from shakedown.benchmarks.software.output import JOB, MISSING, ODD, SoftwareSettings, software
from shakedown.intent.acceptance import Section
from shakedown.intent.software import ProgramName
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.records.base import Stage

_RUNS = none_allowed("software.runs", "the site's software block (group_vars/all/software.yml)")
_ALIKE = none_allowed("software.alike", "two versions exchange different handshakes and measure differently")


def plan_software(draft: PlanDraft, _asked: bool) -> None:
    """Look at every software that the site names, on every node, in one job."""
    names = tuple(draft.site.software)
    if not names:
        return
    for name in names:
        for metric, reference in ((MISSING, _RUNS), (ODD, _ALIKE)):
            draft.forbid(reference, "software", metric=metric, nodes=draft.nodes, params={"program": name})
    draft.job(
        JOB,
        kind="software",
        tests=("software",),
        time_limit_s=120 + 300 * len(names),
        settings=SoftwareSettings(names=names, nodes=draft.nodes).model_dump(),
    )


BENCHMARK = Benchmark(
    name="software",
    stage=Stage.CONFIG,
    section=Section(key="software_check", kind=bool, absent=True),
    plan=plan_software,
    night=EveryNight(asked=lambda site: bool(site.software)),
    jobs={
        "software": JobKind(
            catches="a module, package or image that one node lacks, a container runtime that is missing, a "
            "library that is not found, and another version on one node than on the rest",
            order=SoftwareSettings.model_validate,
            launch=by_module("shakedown.benchmarks.software.job"),
            wait_s=0,  # a node that fails at once must not end the others' look
            each_node=True,
            uses=get_args(ProgramName),
        )
    },
    tools={"software": Tool(metrics=software)},
)
