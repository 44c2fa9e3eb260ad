"""The config stage's benchmark of hosts: its plan and its object. Settings, and parts that must be alike."""

from collections.abc import Iterator

from shakedown.benchmarks.base.contract import Benchmark, EveryNight, JobKind, Tool, by_module
from shakedown.benchmarks.config.odd_parts import PARTS, snapshot_measurements
from shakedown.benchmarks.config.ordered import ordered_measurements
from shakedown.benchmarks.config.output import settings
from shakedown.benchmarks.config.settings import (
    ENVIRONMENT,
    OTHERS,
    ConfigStage,
    Expectation,
    ReadBackSettings,
    expected_of_environment,
    expected_of_nic,
)
from shakedown.benchmarks.config.versions import plan_versions, version_measurements
from shakedown.intent.acceptance import Section
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.records.base import Params, Stage
from shakedown.records.results import Measurement
from shakedown.run.folder import Run

INTENT = none_allowed(
    "intent.setting", "the site's fabric intent (group_vars/all/fabric.yml) and what its playbooks set"
)
ALIKE = none_allowed("inventory.alike", "parts of one class are sold and installed as alike")
UNREAD = "config.settings_reader is false: site.yml may not install what reads settings on these nodes"
DISTINCT = none_allowed(
    "inventory.distinct",
    "hosts of the inventory are different machines; machine-id(5), boot_id of random(4), IEEE 802 "
    "addresses and GUIDs are each of one machine",
)


def plan_config(draft: PlanDraft, stage: ConfigStage) -> None:
    """Settings, and parts that must be alike."""
    plan_settings(draft, stage)
    plan_clocks(draft, stage)
    plan_inventory(draft)
    plan_versions(draft)


def plan_settings(draft: PlanDraft, stage: ConfigStage) -> None:
    """Every setting of every NIC and node, read back in one job."""
    site = draft.site
    expect: dict[str, dict[str, Expectation]] = {}
    targets: dict[str, dict[str, str | None]] = {}
    for node in draft.nodes:
        targets[node] = {nic.netdev: nic.rail for nic in site.nics[node]} | dict.fromkeys(stage.targets)
        expect[node] = {
            nic.netdev: expected_of_nic(
                site.network(),
                rdma_device=nic.rdma_device,
                ipv4=nic.ipv4,
                dcb=stage.dcb,
                link_speed=stage.link_speed,
            )
            for nic in site.nics[node]
        }
        for target in stage.targets:
            expect[node][target] = expected_of_environment(site.network()) if target == ENVIRONMENT else {}
    # A NIC is known by its rail; what belongs to no rail, by its target.
    blocks: dict[tuple[str | None, str | None, str], list[str]] = {}
    for node, by_target in expect.items():
        for name, expectation in by_target.items():
            for setting in (*expectation, OTHERS):
                rail = targets[node][name]
                blocks.setdefault((rail, None if rail else name, setting), []).append(node)
    for (rail, of, setting), nodes in blocks.items():
        params: Params = {"setting": setting, **({"target": of} if of else {})}
        draft.forbid(
            INTENT,
            "settings",
            nodes=nodes,
            rails=(rail,),
            params=params,
            not_run="" if stage.settings_reader else UNREAD,
        )
    if not stage.settings_reader:
        draft.caveats.append("The nodes' settings were not read: nothing may be installed on them.")
        return
    draft.job(
        "config.settings",
        kind="settings",
        tests=("settings",),
        time_limit_s=300,
        expected_s=16,
        expected_from="16 s for the settings of all nodes (emulated, recorded run lab_healthy)",
        settings=ReadBackSettings(targets=targets, expect=expect).model_dump(),
    )


def plan_clocks(draft: PlanDraft, stage: ConfigStage) -> None:
    """Every node's clock must be near the submit host's."""
    source = "the site's config.clock_offset_s (acceptance.yml), 1 s unless it says otherwise"
    limit = none_allowed("config.clock_offset", source, limit=stage.clock_offset_s, unit="s")
    draft.forbid(limit, "clock", metric="offset", nodes=draft.nodes)


def plan_inventory(draft: PlanDraft) -> None:
    """Like parts must have like firmware, drivers and tools, and hosts be different machines."""
    draft.forbid(DISTINCT, "identity", metric="shared", nodes=draft.nodes)
    for part in PARTS:
        if part != "gpu" or "gpu" in draft.site.acceptance.scope:
            draft.forbid(ALIKE, "inventory", metric="odd", nodes=draft.nodes, params={"part": part})


SECTION = Section(key="config", kind=ConfigStage | None, needs_fabric=True, reads_switches=True)


def _of_the_snapshot(run: Run) -> Iterator[Measurement]:
    yield from snapshot_measurements(run)
    yield from ordered_measurements(run)
    yield from version_measurements(run)


BENCHMARK = Benchmark(
    name="config",
    stage=Stage.CONFIG,
    section=SECTION,
    plan=plan_config,
    night=EveryNight(),
    jobs={
        "settings": JobKind(
            catches="a node that was never configured, lost its settings at boot, drifted, or was configured "
            "from another intent than the one this run is judged by",
            order=ReadBackSettings.model_validate,
            launch=by_module("shakedown.benchmarks.config.job"),
            wait_s=0,  # a node that fails at once must not end the others' read-back
            each_node=True,
        )
    },
    tools={"settings": Tool(metrics=settings)},
    gather=_of_the_snapshot,
    words={
        "inventory": "hardware and software",
        "ordered": "delivered against ordered",
        "settings": "host settings",
        "versions": "versions beside the published ones",
    },
)
