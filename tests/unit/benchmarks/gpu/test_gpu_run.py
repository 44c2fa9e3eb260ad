"""What really ran on four GPUs, with faults planted in its raw files: each must be named, none may pass."""

import json
import re
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from shakedown.benchmarks.gpu.metrics import judge_gpu
from shakedown.benchmarks.gpu.state import GpuState, parse_gpu_look
from shakedown.judge.verdict import judge
from shakedown.onnode.gpus import kernel_log
from shakedown.records.base import Outcome
from shakedown.records.plan import Plan
from shakedown.records.reading import read_record
from shakedown.records.results import Measurement
from tests.kit.cases import cases
from tests.kit.files import edited
from tests.kit.job import leave_the_rest
from tests.kit.run import gather
from tests.kit.site import one_node, plan_site
from tests.unit.roles.host_settings.test_node_reader import FRONTS

NCCL = "collective.nccl0.one-process.1x.gpu1"
SIZE = "collective/nccl_all_reduce/{}/gpu1/-/-/dtype=float,size_bytes={}"
LARGEST = SIZE.format("busbw", 8589934592)
TRANSPORT = "collective/nccl_transport/wrong/gpu1/-/-/check={},dtype=float,operation=all_reduce"
STATE = "node/gpu_state/wrong/gpu1/-/-/check={}"


@pytest.fixture
def run(tmp_path, recorded_run):
    """A copy of the run with two of its operations: reading all six takes a second a test."""
    keep = {f"{NCCL}.a1", "node.gpu_node.a1"}
    made, folder = recorded_run("h200x4_nccl"), tmp_path / "run"
    (folder / "raw").mkdir(parents=True)
    for name in ("plan.json", "jobs.json"):
        shutil.copy(made / name, folder)
    for job in keep:
        drop = shutil.ignore_patterns("*all_gather*", "*alltoall*", "*broadcast*", "*sendrecv*", "rfm*")
        shutil.copytree(made / "raw" / job, folder / "raw" / job, ignore=drop)
    journal = folder / "raw" / f"{NCCL}.a1" / "outputs.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text(
        "".join(
            line
            for line in lines
            if re.search("nccl_(all_reduce|reduce_scatter)[.]r1|nccl_all_reduce.log", line)
        )
    )
    return folder


def cells(run: Path) -> dict[str, tuple[Outcome, str]]:
    """Read and judge: outcome and reason of every cell that did not pass, by id."""
    verdict = judge(read_record(run / "plan.json", Plan), gather(run)[0])
    return {cell.cell: (cell.outcome, cell.reason) for cell in verdict.cells}


def values(run: Path, test: str) -> dict[str, Measurement]:
    """Return one test's measurements of 8 GiB, or of no size, by metric."""
    return {
        m.metric: m
        for m in gather(run)[0]
        if m.test == test and m.params.get("size_bytes", 8589934592) == 8589934592
    }


def change(run: Path, name: str, old: str, new: str, job: str = NCCL, *, count: int = 0) -> None:
    """Replace text in a job's raw file; it must be there."""
    path = run / "raw" / f"{job}.a1" / name
    text = path.read_text(encoding="utf-8")
    changed, times = re.subn(old, new, text, count=count)
    assert times
    path.write_text(changed, encoding="utf-8")


def look(run: Path, edit) -> None:
    """Change what the node said of its GPUs after the load."""
    with edited(run / "raw" / "node.gpu_node.a1" / "gpus.gpu1.after.json") as seen:
        edit(seen)


def test_the_run_as_it_was(run):
    """Catches: a rule that no longer passes what was good: 8 GiB, every transport, every GPU's state."""
    bad = cells(run)
    assert LARGEST not in bad
    assert not any(TRANSPORT.format(check) in bad for check in ("ranks", "intra_node", "nvls"))
    assert not any("gpu_state" in cell for cell in bad)
    busbw = values(run, "nccl_all_reduce")["busbw"]
    assert (busbw.value, busbw.samples) == (365.0, (364.95, 365.0, 365.04))


@cases(
    "old, new, check, says",
    (r"via P2P/\S.*", "via SHM/direct/direct", "intra_node", "host memory: P2P is off"),
    (r"via P2P/\S.*", "[send] via NET/Socket/0", "intra_node", "go over the network (Socket)"),
    (r"(busId )90( .*Init|.*Destroy COMPLETE)", r"\g<1>80\2", "ranks", "[3], [4] planned"),
)
def test_data_that_went_another_way(run, old, new, check, says):
    """Catches: P2P disabled, sockets inside a node, a GPU that took no part; the bandwidth may look well."""
    change(run, "nccl_all_reduce.log", old, new)
    outcome, reason = cells(run)[TRANSPORT.format(check)]
    assert outcome is Outcome.FAIL
    assert says in reason


@pytest.mark.parametrize(
    ("wanted", "channels", "says"), [(True, 0, "off, on wanted"), (False, 16, "on, off wanted")]
)
def test_nvlink_sharp_against_expectation(run, wanted, channels, says):
    """Catches: NVLink SHARP off where the reference needs it, or on where the figure is the ring's."""
    with edited(run / "jobs.json") as jobs:
        for job in jobs["jobs"]:
            if job["kind"] == "nccl":
                job["settings"]["expect"]["nvls"] = wanted
    leave_the_rest(run)
    if channels:
        change(run, "nccl_all_reduce.log", "0 nvls channels", f"{channels} nvls channels")
    outcome, reason = cells(run)[TRANSPORT.format("nvls")]
    assert outcome is Outcome.FAIL
    assert says in reason


@cases(
    "model, called, wrong",
    ("H200-SXM", "NVIDIA H200", 0),
    ("H200-SXM", "NVIDIA A10", 1),
    ("H200-SXM", "NVIDIA H200 NVL", 1),
    ("H100-SXM", "NVIDIA H100 80GB HBM3", 0),
    ("H100-SXM", "NVIDIA H100 PCIe", 1),
)
def test_a_gpu_of_another_model_than_was_bought_is_named(run, model, called, wrong):
    """Catches: A10s that pass on the profile of an H200, or a card with the name of the right generation."""
    folder = run / "raw/node.gpu_node.a1"
    shown = (folder / "gpus.gpu1.after.json").read_text().replace("NVIDIA H200", called)
    gpus = parse_gpu_look(shown).gpus
    found = [next(judge_gpu(gpu, GpuState(model=model), None, None)) for gpu in gpus]
    assert {(one.check, one.wrong) for one in found} == {("model", wrong)}
    assert found[0].detail == f"the driver calls it {called}, {model} wanted"


def test_a_site_that_says_its_gpu_has_it_checked():
    """Catches: a site of H200s whose plan never asks what the GPUs are called; a model that nobody knows."""
    site = one_node("lab", gpus=2, scope={"gpu": "H200-SXM"}, gpu_node={})
    plan, _ = plan_site(site, [])
    asked = [item.params["gpu"] for item in plan.items if item.params.get("check") == "model"]
    assert asked == [0, 1]
    with pytest.raises(ValidationError, match="there are A100-SXM"):
        GpuState(model="H2000")


def test_a_log_that_does_not_tell_proves_nothing(run):
    """Catches: a transport that passes because the log was cut off."""
    path = run / "raw" / f"{NCCL}.a1" / "nccl_all_reduce.log"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:60]))
    bad = cells(run)
    for check in ("ranks", "intra_node", "nvls"):
        assert bad[TRANSPORT.format(check)][0] is Outcome.INCONCLUSIVE


def test_a_wrong_sum_fails(run):
    """Catches: bandwidth with wrong data."""
    change(run, "nccl_all_reduce.r2.txt", r"(  8589934592 .*?)      0( +\S+ +\S+ +\S+ +0)", r"\1      7\2")
    change(run, "nccl_all_reduce.r2.txt", "Out of bounds values : 0 OK", "Out of bounds values : 1 FAILED")
    outcome, reason = cells(run)[SIZE.format("wrong", 8589934592)]
    assert outcome is Outcome.FAIL
    assert "7, none allowed" in reason


def test_what_nccl_said_last_is_told_and_decides_nothing(run):
    """Catches: NCCL's last error read and told to nobody, or a warning that did no harm failing a cell."""
    healthy = cells(run)
    error = "# error: NET/IB : Got async event : port error\n# Collective test concluded"
    change(run, "nccl_all_reduce.r2.txt", "# Collective test concluded", error)
    assert {cell: outcome for cell, (outcome, _) in cells(run).items()} == {
        cell: outcome for cell, (outcome, _) in healthy.items()
    }
    details = {m.detail for m in gather(run)[0] if (m.test, m.metric) == ("nccl_all_reduce", "wrong")}
    assert details == {"NCCL's last error: NET/IB : Got async event : port error"}


def test_wrong_elements_that_the_footer_denies_fail(run):
    """Catches: "#wrong 7" in a row above "0 OK" as INCONCLUSIVE; rates and zeros of such an output PASSed."""
    change(run, "nccl_all_reduce.r2.txt", r"(  8589934592 .*?)      0( +\S+ +\S+ +\S+ +0)", r"\1      7\2")
    bad = cells(run)
    outcome, reason = bad[SIZE.format("wrong", 8589934592)]
    assert outcome is Outcome.FAIL and "7, none allowed" in reason
    rest = {cell: outcome for cell, (outcome, _) in bad.items() if "/nccl_all_reduce/" in cell}
    rest = {cell: outcome for cell, outcome in rest.items() if "/busbw/" in cell or "/wrong/" in cell}
    assert rest.pop(SIZE.format("wrong", 8589934592)) is Outcome.FAIL
    assert len(rest) > 20 and set(rest.values()) == {Outcome.INCONCLUSIVE}


def test_a_failure_that_no_row_shows_fails(run):
    """Catches: FAILED in a run's footer as INCONCLUSIVE because no row says which size is wrong."""
    change(run, "nccl_all_reduce.r2.txt", "Out of bounds values : 0 OK", "Out of bounds values : 3 FAILED")
    bad = cells(run)
    outcome, reason = bad[SIZE.format("wrong", 8589934592)]
    assert outcome is Outcome.FAIL
    assert "3, none allowed" in reason
    assert "footer counts 3 out of bounds, and no row of its run has any" in reason
    assert {outcome for cell, (outcome, _) in bad.items() if "/nccl_all_reduce/wrong/" in cell} == {
        Outcome.FAIL
    }


@cases(
    "name, old, new, says",
    ("nccl_all_reduce.r1.txt", r"\n +4096 .*", "", "a row is missing|rows"),
    ("nccl_all_reduce.r1.txt", r"\n#  Rank  3 .*", "", "the list of ranks is not complete: 3"),
    ("nccl_all_reduce.r1.txt", "all_reduce_perf", "broadcast_perf", "contradicts 128 bytes"),
    ("nccl_all_reduce.r3.txt", r"(float .*) +0\n", r"\1    N/A\n", "r3.txt: the data were not checked"),
    ("nccl_all_reduce.r2.txt", r"(?s)\n +1048576 .*", "", "ends before"),
)
def test_numbers_that_are_not_the_planned_ones(run, name, old, new, says):
    """Catches: a missing size, fewer GPUs, another operation, unchecked data, a cut-off repeat."""
    change(run, name, old, new)
    outcome, reason = cells(run)[LARGEST]
    assert outcome is Outcome.INCONCLUSIVE
    assert re.search(says, reason)


def test_a_missing_repeat_decides_nothing(run):
    """Catches: a spread claimed of three runs of which one never ended."""
    (run / "raw" / f"{NCCL}.a1" / "nccl_all_reduce.r3.txt").unlink()
    assert cells(run)[LARGEST][0] is Outcome.INCONCLUSIVE


def test_messages_that_moved_nothing_decide_nothing(run):
    """Catches: 1 us at 8 B for an operation that rounds 8 B down to nothing, taken for a good time."""
    cell = "collective/nccl_reduce_scatter/time/gpu1/-/-/dtype=float,size_bytes=8"
    outcome, reason = cells(run)[cell]
    assert outcome is Outcome.INCONCLUSIVE
    assert "no data moved" in reason


def gpus(old: str, new: str):
    """Return an edit of nvidia-smi's table."""

    def edit(seen) -> None:
        table = seen["commands"]["gpus"]
        changed, times = re.subn(old, new, table["out"], count=1)
        assert times
        table["out"] = changed

    return edit


def xid(seen) -> None:  # noqa: D103
    seen["kernel"]["out"] = "NVRM: Xid (PCI:0000:00:07): 79, GPU has fallen off the bus.\n"


def link_down(seen) -> None:  # noqa: D103
    link = seen["commands"]["nvlink"]
    link["out"] = link["out"].replace("Link 3: 26.562 GB/s", "Link 3: <inactive>", 1)


def bent_topology(seen) -> None:  # noqa: D103
    topology = seen["commands"]["topology"]
    topology["out"] = topology["out"].replace("NV18", "SYS ")


@cases(
    "edit, check, says",
    (gpus(r"\n3, .*", ""), "count", "3 GPUs, 4 planned"),
    (xid, "xid", "Xid (PCI:0000:00:07): 79"),
    (gpus(r"Enabled, 0,", "Enabled, 2,"), "ecc,gpu=0", "2 uncorrectable errors"),
    (gpus(r"Enabled, 0,", "Disabled, 0,"), "ecc,gpu=0", "ECC is off"),
    (link_down, "nvlink,gpu=0", "17 NVLinks are active, 18 wanted"),
    (bent_topology, "topology,gpu=2", "linked by SYS, NV18 wanted"),
)
def test_what_is_wrong_with_a_gpu_is_named(run, edit, check, says):
    """Catches: a missing GPU, an Xid, ECC errors, ECC off, a dead NVLink, GPUs linked otherwise."""
    look(run, edit)
    outcome, reason = cells(run)[STATE.format(check)]
    assert outcome is Outcome.FAIL
    assert says in reason


def test_a_later_driver_s_reason_for_slow_clocks_is_told_and_is_no_pass(run):
    """Catches: a bit that nobody knows here, passed as no slowdown, or blamed as heat."""
    change(run, "gpus.gpu1.samples.csv", "0x0000000000000000", "0x0000000000000200", "node.gpu_node")
    outcome, reason = cells(run)[STATE.format("slowdown,gpu=1")]
    assert outcome is Outcome.INCONCLUSIVE and "not known here: 0x200" in reason


def state(run, edit, **asked) -> dict[str, tuple[float | None, str]]:
    """What is said of a node and its GPU 0 by the checks of today: value and words."""
    with edited(run / "jobs.json") as jobs:
        settings = next(job["settings"] for job in jobs["jobs"] if job["kind"] == "gpu_node")
        settings["state"] |= {"hardware": True, "earlier": True, "mig": True, "fabric": True, **asked}
        (run / "raw/node.gpu_node.a1/spec.json").write_text(json.dumps(settings, indent=1) + "\n")

    def today(seen) -> None:
        uuids = re.findall(r"GPU-[0-9a-f-]{36}", seen["commands"]["gpus"]["out"])
        answers = {
            "mig": ("mig.mode.current", "Disabled"),
            "fabric": ("fabric.state, fabric.status", "Completed, Success"),
        }
        for name, (fields, value) in answers.items():
            out = f"uuid, {fields}\n" + "".join(f"{uuid}, {value}\n" for uuid in uuids)
            seen["commands"][name] = {"argv": [], "exit_code": 0, "out": out, "error": ""}
        edit(seen)

    look(run, today)
    found = [m for m in gather(run)[0] if m.test == "gpu_state" and m.params.get("gpu", 0) == 0]
    return {str(m.params["check"]): (m.value, m.detail or "") for m in found}


PROGRAM = "NVRM: Xid (PCI:0000:17:00): 31, pid=2210001, name=python, MMU Fault"
GONE = "NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus."
SXID = "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up"
EDAC = "EDAC MC3: 42 UE memory read error on CPU_SrcID#0_MC#3_Chan#0_DIMM#0"
AER = "pcieport 0000:15:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:18:00.0"
POWER = "mlx5_core 0000:18:00.0: mlx5_pcie_event:301: Detected insufficient power on the PCIe slot (27W)."
HOUR_S = 3600.0
NOW_S = 0.5  # of the job's own time


@cases(
    "lines, check, wrong, says",
    ([(100_000.0, PROGRAM)], "earlier", 0, "0 errors before the job: ; 1 of programs"),
    ([(None, PROGRAM)], "xid", 0, "0 Xid: ; 1 of programs"),
    ([(0.5, PROGRAM)], "xid", 1, "31, pid=2210001"),
    (
        [(100_000.0, GONE)],
        "earlier",
        1,
        "1 error before the job: NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus. (27.8 h before",
    ),
    ([(None, GONE)], "xid", 1, "79"),
    ([(100_000.0, SXID), (HOUR_S, EDAC), (HOUR_S, AER)], "earlier", 2, "42 UE memory read error"),
    ([(NOW_S, AER)], "hardware", 0, "1 told, no failure: pcieport"),
    ([(NOW_S, AER.replace("Non-Fatal", "Fatal"))], "hardware", 1, "(Fatal)"),
    ([(NOW_S, SXID.replace("Fatal", "Non-fatal"))], "hardware", 0, "no failure"),
    ([(NOW_S, f"[ T1234] {GONE}")], "xid", 1, "1 Xid: NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen"),
    (
        [
            (
                NOW_S,
                "mlx5_core 0000:c1:00.0: Port module event[error]: module 0, Cable error, High Temperature",
            )
        ],
        "hardware",
        1,
        "",
    ),
    ([(NOW_S, "mlx5_core 0000:c1:00.0 enp1s0: Link down")], "hardware", 0, "1 told, no failure: mlx5_core"),
    (
        [(NOW_S, POWER), *((age, f"EDAC MC0: {age:.0f} CE memory scrubbing error") for age in range(1, 9))],
        *("hardware", 0, "insufficient power on the PCIe slot"),
    ),
    *(
        ([(NOW_S, words)], "hardware", 1, words)
        for words in (
            "NVRM: GPU 0000:17:00.0: RmInitAdapter failed! (0x62:0x40:2393)",
            "NVRM: The NVIDIA GPU 0000:17:00.0 (PCI ID: 10de:2330) has fallen off the bus",
            "pcieport 0000:15:01.0: DPC: containment event, status:0x1f01 source:0x0000",
            "mlx5_core 0000:18:00.0: poll_health:795:(pid 0): Fatal error 1 detected",
            "mlx5_core 0000:18:00.0: print_health_info:428: Health issue observed, firmware internal error",
            "bnxt_en 0000:18:00.0 ens1: Received firmware fatal error, asserting",
            "mce: [Hardware Error]: CPU 5: Machine Check Exception: 5 Bank 7: be00000000800400",
            "[Hardware Error]: Uncorrected, software restartable error.",
            "mce: Uncorrected hardware memory error in user-access at 3f17b20400",
            "mlx5_core 0000:1a:00.0: wait_func:1151: CREATE_QP(0x500) timeout. Will cause a leak of a",
            "bnxt_en 0000:41:00.0 ens1f0np0: Firmware not responding, status: 0x8a61",
            "NVRM: _kgspIsHeartbeatTimedOut: Heartbeat timed out",
            "amdgpu 0000:c1:00.0: amdgpu: GPU reset(1) failed",
            "pcieport 0000:16:01.0: AER: device recovery failed",
        )
    ),
    ([(NOW_S, "NETDEV WATCHDOG: ens1 (mlx5_core): transmit queue 3 timed out")], "hardware", 0, "WATCHDOG"),
    ([(NOW_S, "DMAR: [DMA Read NO_PASID] Request device [18:00.0] fault addr 0x0")], "hardware", 0, "DMAR"),
)
def test_what_the_kernel_s_log_says(run, lines, check, wrong, says):
    """Catches: a user's page fault of last week that fails a node, a dead NVSwitch or DIMM that does not."""

    def edit(seen) -> None:
        now = 200_000.0
        seen["kernel"] |= {"now_s": now, "exit_code": 0}
        texts = [text if age is None else f"[{now - age:.6f}] {text}" for age, text in lines]
        seen["kernel"]["out"] = "".join(f"{text}\n" for text in texts)

    found = state(run, edit)
    value, words = found.pop(check)
    assert value == wrong and says in words, words
    for other in {"xid", "hardware", "earlier"} & set(found):
        assert found[other][0] == 0 and "told" not in found[other][1], found[other]


@cases(
    "had, settings, xid, earlier",
    (GONE, {}, (0, "0 Xid: "), (1, "1 error before the job: NVRM: Xid (PCI:0000:17:00): 79")),
    (PROGRAM, {}, (0, "0 Xid: "), (0, "0 errors before the job: ; 1 of programs")),
    (f"{GONE}\n{GONE}", {}, (1, "1 Xid: NVRM"), (1, "1 error before the job: NVRM")),
    (GONE, {"xid": False}, None, (0, "0 errors before the job: ")),
    (GONE, {"earlier": False}, (1, "1 Xid: NVRM"), None),
    (PROGRAM, {"earlier": False}, (0, "0 Xid: ; 1 of programs"), None),
    (GONE, {"xid": False, "hardware": False}, None, None),
)
def test_what_the_log_had_as_the_job_began_is_not_the_job_s(run, had, settings, xid, earlier):
    """Catches: an error of before the job among its own, as its line bears no time; one of the job lost."""

    def edit(seen) -> None:
        seen["kernel"] |= {"now_s": 1e6, "exit_code": 0, "out": f"{had}\n"}

    with edited(run / "raw" / "node.gpu_node.a1" / "gpus.gpu1.before.json") as seen:
        seen["kernel"] |= {"exit_code": 0, "out": f"{had.splitlines()[0]}\n"}
    found = state(run, edit, **settings)
    for check, wanted in (("xid", xid), ("earlier", earlier)):
        assert (check in found) is (wanted is not None), found
        if wanted:
            assert found[check][0] == wanted[0] and found[check][1].startswith(wanted[1]), found


@pytest.mark.parametrize("front", FRONTS)
def test_a_line_counts_in_whatever_form_its_time_stands(run, front):
    """Catches: an Xid that a wrapper of dmesg dates in another form, kept and passed."""

    def edit(seen) -> None:
        seen["kernel"] |= {"now_s": 1e6, "exit_code": 0, "out": f"{front}{GONE}\n"}

    found = state(run, edit)
    assert found["xid"][0] + found["earlier"][0] == 1, found


@cases(
    "begin, end, kept, doubt",
    ((3.5, 900.0), 3.5, True, False),
    ((3.5, 900.0), 950.0, True, True),
    ((3.5, 900.0), None, True, True),
    ((None, 900.0), None, True, False),
    ((3.5, None), 950.0, True, False),
    ((3.5, 900.0), 3.5, False, True),
)
def test_a_log_that_lost_lines_of_the_job_leaves_no_check_good(run, begin, end, kept, doubt):
    """Catches: a storm of messages, or `dmesg -C`, after which an Xid of the job itself is gone: PASS."""
    with edited(run / "raw" / "node.gpu_node.a1" / "gpus.gpu1.before.json") as seen:
        old = f"[ 100.1] {GONE}\n"
        seen["kernel"] |= {"oldest_s": begin[0], "now_s": begin[1], "out": old, "exit_code": 0}

    def edit(seen) -> None:
        seen["kernel"] |= {"oldest_s": end, "now_s": 960.0, "exit_code": 0, "out": old * kept}

    assert state(run, edit)["earlier"][0] == 1, "what the log had before"
    found = [m for m in gather(run)[0] if m.params.get("check") in ("xid", "hardware")]
    assert [bool(m.disturbed and "lost lines" in m.disturbed) for m in found] == [doubt] * 2, found


def test_an_xid_in_a_form_that_nobody_knows_is_no_silence(run, monkeypatch):
    """Catches: a line with an Xid that no expression of ours fits, dropped on the node as a user's words."""
    line = f"2026/11/20 17h20: {GONE}"
    printed = {"argv": ["dmesg"], "exit_code": 0, "out": f"{line}\n[ 9.1] {GONE}\n", "error": ""}
    monkeypatch.setattr("shakedown.onnode.gpus.run", lambda _: dict(printed))
    kernel = kernel_log()
    assert (kernel["out"], kernel["strange"]) == (f"[ 9.1] {GONE}\n", 1)
    look(run, lambda seen: seen["kernel"].update(exit_code=0, strange=1, out=""))
    outcome, reason = cells(run)[STATE.format("xid")]
    assert outcome is Outcome.INCONCLUSIVE and "in a form that is not known" in reason


def test_an_error_that_an_older_order_did_not_ask_for_is_no_pass(run):
    """Catches: a fatal error of an NVSwitch in a log that was read, passed by a check on Xids alone."""

    def edit(seen) -> None:
        seen["kernel"] |= {"exit_code": 0, "out": f"[ 812.1] {SXID}\n"}

    look(run, edit)
    outcome, reason = cells(run)[STATE.format("xid")]
    assert outcome is Outcome.INCONCLUSIVE and SXID in reason
    assert f"not asked for: {SXID}" in state(run, edit, hardware=False)["xid"][1]


def test_clocks_that_drift_over_months_make_no_error_of_the_job_an_earlier_one(run):
    """Catches: a program's Xid of the job itself, only told as the kernel's clock runs minutes slow."""

    def edit(seen) -> None:
        seen["kernel"] |= {"now_s": 8e6, "exit_code": 0, "out": f"[{8e6 - 500:.6f}] {PROGRAM}\n"}

    assert state(run, edit)["xid"][0] == 1


def test_an_error_in_a_cell_costs_its_own_check_and_a_warning_is_told(run):
    """Catches: a corrupted infoROM, or one sensor that does not answer, that costs all of a node."""

    def edit(seen) -> None:
        table = re.sub(r"(?m)^(2, .*Enabled), 0,", r"\1, [Unknown Error],", seen["commands"]["gpus"]["out"])
        table = re.sub(r"[0-9.]+ W,", "[Unknown Error],", table, count=1)
        seen["commands"]["gpus"]["out"] = f"{table}WARNING: infoROM is corrupted at gpu 0000:00:08.0\n"

    look(run, edit)
    bad = {cell: found for cell, found in cells(run).items() if "gpu_state" in cell}
    assert bad.keys() == {STATE.format("count"), STATE.format("ecc,gpu=2")}, bad
    assert all(outcome is Outcome.INCONCLUSIVE for outcome, _ in bad.values())
    assert "infoROM is corrupted at gpu 0000:00:08.0" in bad[STATE.format("count")][1]
    assert "uncorrected.volatile.total is [Unknown Error]" in bad[STATE.format("ecc,gpu=2")][1]


HANDLE = "Unable to determine the device handle for GPU"


@cases(
    "row, exit_code, said, kept",
    # It lists the others, and goes on.
    (f"{HANDLE}2: 0000:00:08.0: Unknown Error", 0, f"3 GPUs, 4 planned, nvidia-smi says: {HANDLE}2", True),
    (f"{HANDLE} 0000:00:08.0: GPU is lost.  Reboot the system", 15, "GPU is lost.  Reboot", True),
    (r"\1, [GPU requires reset],\2", 0, "nvidia-smi says: GPU 2: ecc.errors.uncorrected", True),
    # It ends at the first of them.
    (None, 15, f"0 GPUs, 4 planned, nvidia-smi says: {HANDLE} 0000:00:08.0: GPU is lost", False),
)
def test_a_lost_gpu_fails_by_its_name_and_costs_no_other(run, row, exit_code, said, kept):
    """Catches: a GPU that fell off the bus, told as 34 cells of four GPUs that cannot be read."""

    def edit(seen) -> None:
        listed = seen["commands"]["gpus"]
        listed["exit_code"] = exit_code
        lost = f"{HANDLE} 0000:00:08.0: GPU is lost.  Reboot the system to recover this GPU\n"
        listed["out"] = re.sub(r"(?m)^(2, .*Enabled), 0,(.*)$", row, listed["out"]) if row else lost

    look(run, edit)
    bad = {cell: found for cell, found in cells(run).items() if "gpu_state" in cell}
    outcome, reason = bad.pop(STATE.format("count"))
    assert outcome is Outcome.FAIL and said in reason
    assert all(outcome is Outcome.INCONCLUSIVE for outcome, _ in bad.values())
    assert not kept or all("gpu=2" in cell for cell in bad), bad


@cases(
    "job, file, said, test",
    (
        "node.gpu_node",
        "nvbandwidth.gpu1.host_to_device_memcpy_ce.err",
        "Invalid value when checking the",
        None,
    ),
    (NCCL, "nccl_all_reduce.r3.err", "n1:7:8 [0] NCCL WARN NET/IB : Got completion 12", "nccl_all_reduce"),
    (NCCL, "nccl_all_reduce.r3.err", "slurmstepd: error: Detected 1 oom_kill event in", "nccl_all_reduce"),
    (NCCL, "nccl_all_reduce.r2.err", "n1:7:8 [0] NCCL WARN TUNER/Plugin: none", ""),
)
def test_an_event_on_stderr_leaves_no_figure_good(run, job, file, said, test):
    """Catches: a lost NIC, or data that were found wrong, told beside results of a tool that ended well."""
    (folder,) = (run / "raw").glob(f"{job}*.a1")
    (folder / file).write_text(f"{said}\n")
    found = {m.test for m in gather(run)[0] if m.disturbed and said in m.disturbed}
    assert found == ({test or "host_to_device_memcpy_ce"} if test != "" else set())


def test_what_nccl_warns_of_among_its_rows_leaves_no_figure_good(run):
    """Catches: a site's NCCL_DEBUG=WARN, by which a NIC's error stands in a repeat's rows, read by nobody."""
    line = "n1:7:8 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error"
    change(run, "nccl_all_reduce.r2.txt", "\n( +8589934592 )", f"\n{line}\n\\1")
    outcome, reason = cells(run)[LARGEST]
    assert outcome is Outcome.INCONCLUSIVE and "nccl_all_reduce.r2.txt tells of an event" in reason


def in_parts(seen) -> None:
    """What nvidia-smi prints of GPU 0 in MIG mode."""
    commands = seen["commands"]
    commands["nvlink"]["out"] = re.sub(
        r"(GPU 0: .*\n)(?:\s+Link .*\n)+",
        r"\1Nvlink queries are not supported for Devices in MIG mode\n",
        commands["nvlink"]["out"],
    )
    commands["mig"]["out"] = commands["mig"]["out"].replace("Disabled", "Enabled", 1)


def no_such_field(seen) -> None:  # noqa: D103
    words = 'Field "fabric.state" is not a valid field to query.\n'
    seen["commands"]["fabric"] = {"argv": [], "exit_code": 2, "out": words, "error": ""}


def fabric(words):
    """Return an edit of the fabric's state of GPU 0."""

    def edit(seen) -> None:
        table = seen["commands"]["fabric"]
        table["out"] = table["out"].replace("Completed, Success", words, 1)

    return edit


@cases(
    "edit, check, wrong, says",
    (lambda seen: None, "mig", 0, "off"),
    (in_parts, "mig", 1, "MIG is on"),
    (in_parts, "nvlink", None, "in MIG mode"),
    (lambda seen: seen["commands"].pop("mig"), "mig", None, "not told"),
    (lambda seen: None, "fabric", 0, "up"),
    (fabric("In Progress, N/A"), "fabric", 1, "state is In Progress"),
    (fabric("Completed, Insufficient Resources"), "fabric", 1, "Insufficient Resources"),
    (fabric("N/A, N/A"), "fabric", 0, "none"),
    (no_such_field, "fabric", 0, "none"),
    (lambda seen: seen["commands"].pop("fabric"), "fabric", None, "not told"),
)
def test_the_mode_and_the_fabric_of_a_gpu(run, edit, check, wrong, says):
    """Catches: MIG left on read as missing NVLinks, and links that are up over a fabric that is not."""
    value, words = state(run, edit)[check]
    assert value == wrong and says in words, words


@cases(
    "name, old, new, undecided",
    ("topology", "NV18", "C2C9", "topology"),
    ("mig", "Disabled", 'Disabled"', "mig"),
    ("mig", "Disabled", "Off", "mig"),
    ("fabric", "fabric.state", "Fabric State!", "fabric"),
    ("fabric", "fabric.state", "fabric.condition", "fabric"),
    ("remapped", "remapped_rows.pending", "Remapped?", "remapped"),
)
def test_an_answer_in_later_words_costs_its_own_check_alone(run, name, old, new, undecided):
    """Catches: a node's whole state unread for one word of a later nvidia-smi; or passed."""

    def edit(seen) -> None:
        assert old in seen["commands"][name]["out"]
        seen["commands"][name]["out"] = seen["commands"][name]["out"].replace(old, new)

    found = {check: value for check, (value, _) in state(run, edit).items()}
    assert {check for check, value in found.items() if value is None} == {undecided}
    assert {value for value in found.values() if value is not None} == {0}


def test_another_process_at_the_end_leaves_good_figures_undecided(run):
    """Catches: figures of GPUs that somebody worked on after the first look, passed; sums are right still."""
    assert LARGEST not in cells(run)
    pairs = "node/device_to_device_memcpy_write_ce/bandwidth/gpu1/-/-/gpu={},peer={}"
    before = set(cells(run))
    for job in ("node.gpu_node", NCCL):
        with edited(run / "raw" / f"{job}.a1" / "gpus.gpu1.after.json") as seen:
            uuid = re.findall(r"GPU-[0-9a-f-]+", seen["commands"]["gpus"]["out"])[2]
            seen["commands"]["processes"]["out"] += f"{uuid}, 4711, 638 MiB\n"
    found = cells(run)
    said = "decides nothing: another process was on GPU 2 of gpu1 at the end: process 4711 (638 MiB)"
    for cell in (LARGEST, pairs.format(2, 3), pairs.format(1, 2)):
        assert found[cell][0] is Outcome.INCONCLUSIVE and said in found[cell][1]
    new = set(found) - before
    assert pairs.format(0, 1) not in new and SIZE.format("wrong", 8589934592) not in new
    # Watts of somebody else's work are in the GPUs' own.
    figures = {"bandwidth", "busbw", "time", "power", "energy", "temperature"}
    assert {cell.split("/")[2] for cell in new} <= figures and "/power/" in str(new)


@pytest.mark.parametrize(
    ("said", "decides"),
    [
        ("NET/IB : mlx5_0:1 Got async event : port error", False),
        ('Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!', True),
    ],
)
def test_what_nccl_warns_of_leaves_no_way_good(run, said, decides):
    """Catches: a NIC that NCCL lost in mid-run and went on without, passed by its log's first lines."""
    log = run / "raw" / f"{NCCL}.a1" / "nccl_all_reduce.log"
    log.write_text(f"gpu1:7:8 [0] transport/net_ib.cc:99 NCCL WARN {said}\n" + log.read_text())
    found = cells(run)
    told = [found[cell] for check in ("ranks", "intra_node") if (cell := TRANSPORT.format(check)) in found]
    assert bool(told) is not decides
    for outcome, reason in told:
        assert outcome is Outcome.INCONCLUSIVE and f"NCCL warned of something on gpu1: {said}" in reason


def test_a_missing_gpu_gets_no_values(run):
    """Catches: a GPU that is not there and passes all its checks."""
    look(run, gpus(r"\n3, .*", ""))
    bad = cells(run)
    for check in ("pcie", "nvlink", "topology", "ecc", "remapped", "slowdown"):
        assert bad[STATE.format(f"{check},gpu=3")][0] is Outcome.INCONCLUSIVE


@cases(
    "old, new, check, says",
    (r", 5, 16, (\d+)\n", r", 5, 8, \1\n", "pcie,gpu=1", "Gen5 x8 under load"),
    (r", 5, 16, (\d+)\n", r", 4, 16, \1\n", "pcie,gpu=1", "Gen4 x16 under load"),
    (r"0x0000000000000000", "0x0000000000000040", "slowdown,gpu=1", "hardware thermal slowdown"),
)
def test_what_only_load_shows(run, old, new, check, says):
    """Catches: a link that trained down, clocks slowed by heat: seen in the samples, not at rest."""
    change(run, "gpus.gpu1.samples.csv", old, new, "node.gpu_node")
    outcome, reason = cells(run)[STATE.format(check)]
    assert outcome is Outcome.FAIL
    assert says in reason


@cases(
    "lines, gpus, says",
    (None, "0123", "has no sample of this time"),  # nvidia-smi never started
    (lambda lines: lines[: len(lines) // 3], "0123", " has no sample for "),  # it hung, or was killed
    (lambda lines: [x for x in lines if x.split(", ")[1] != "3"], "3", "GPU 3 of gpu1 has no sample"),
    (lambda lines: [re.sub("0x[0-9a-f]{16}", "[N/A]", x) for x in lines], "0123", "has no sample"),
)
def test_clocks_that_were_not_watched_under_load_do_not_pass(run, lines, gpus, says):
    """Catches: GPUs that heat slowed while nobody looked, passed by one look at them at rest."""
    path = run / "raw" / "node.gpu_node.a1" / "gpus.gpu1.samples.csv"
    slowed = {STATE.format(f"slowdown,gpu={gpu}") for gpu in range(4)}
    assert not slowed & set(cells(run))
    if lines is None:
        path.unlink()
    else:
        header, *rest = path.read_text().splitlines(keepends=True)
        path.write_text(header + "".join(lines(rest)))
    found = cells(run)
    assert slowed & set(found) == {STATE.format(f"slowdown,gpu={gpu}") for gpu in gpus}
    for gpu in gpus:
        outcome, reason = found[STATE.format(f"slowdown,gpu={gpu}")]
        assert outcome is Outcome.INCONCLUSIVE and says in reason


@cases(
    "lines, says",
    (lambda lines: [line for line in lines if line.split(", ")[1] != "3"], "GPU 3 of gpu1 has no sample"),
    (
        lambda lines: [line for n, line in enumerate(lines) if line.split(", ")[1] != "2" or n % 8 > 3],
        "GPU 2 of gpu1 has ",
    ),
    (lambda lines: lines[:-3000], " has no sample "),
)
def test_samples_that_are_missing_do_not_make_less_energy(run, lines, says):
    """Catches: a GPU, or a part of the time, cut out of the samples: less power and energy, which pass."""
    path = run / "raw" / f"{NCCL}.a1" / "gpus.gpu1.samples.csv"
    assert not any(metric.problem for metric in values(run, "nccl_all_reduce").values())
    header, *rest = path.read_text().splitlines(keepends=True)
    path.write_text(header + "".join(lines(rest)))
    for test in ("nccl_all_reduce", "nccl_reduce_scatter"):
        found = values(run, test)
        if any(says in str(found[metric].detail) for metric in ("power", "energy", "temperature")):
            assert found["energy"].value is found["power"].value is found["temperature"].value is None
            return
    pytest.fail("no reason")


@pytest.mark.parametrize(
    ("column", "untold"), [(2, {"power", "energy", "temperature"}), (3, {"temperature"})]
)
@pytest.mark.parametrize("rows", [1, 3])
def test_what_a_gpu_does_not_tell_is_not_little(run, column, untold, rows):
    """Catches: a GPU whose sensor tells nothing, always or now and then, taken for a cold one."""
    path = run / "raw" / f"{NCCL}.a1" / "gpus.gpu1.samples.csv"
    header, *lines = path.read_text().splitlines(keepends=True)
    for n, line in enumerate(lines):
        cells_ = line.split(", ")
        if cells_[1] == "3" and (n // 4) % rows == 0:
            cells_[column] = "[N/A]"
            lines[n] = ", ".join(cells_)
    path.write_text(header + "".join(lines))
    found = values(run, "nccl_all_reduce")
    figures = ("power", "energy", "temperature")
    assert {metric for metric in figures if found[metric].value is None} == untold
    assert all("GPU 3 of gpu1 has " in str(found[metric].detail) for metric in untold)


@cases(
    "edit",
    lambda seen: seen["kernel"].update(exit_code=1, out="", error="Operation not permitted"),
    lambda seen: seen["commands"]["nvlink"].update(out=""),
    gpus("Enabled, 0,", "[N/A], [N/A],"),
)
def test_what_cannot_be_read_does_not_pass(run, edit):
    """Catches: an unreadable kernel log, no NVLink status, no ECC counter, taken for good news."""
    look(run, edit)
    added = [cell for cell, (outcome, _) in cells(run).items() if "gpu_state" in cell and outcome != "PASS"]
    assert added


def test_a_log_for_root_alone_is_not_run_with_that_reason(run):
    """Catches: a site that shows its kernel log to root alone, reported as a node in doubt."""
    look(run, lambda seen: seen["kernel"].update(exit_code=1, out="", error="Operation not permitted"))
    outcome, reason = cells(run)[STATE.format("xid")]
    assert outcome is Outcome.NOT_RUN
    assert "the kernel log cannot be read: Operation not permitted" in reason


def test_no_driver_is_no_result(run):
    """Catches: a node whose nvidia-smi fails, judged from what it printed before."""

    def broken(seen) -> None:
        seen["commands"]["gpus"].update(exit_code=9, out="NVIDIA-SMI has failed", error="")

    look(run, broken)
    bad = cells(run)
    assert bad[STATE.format("count")][0] is Outcome.INCONCLUSIVE
    assert "did not list the GPUs" in bad[STATE.format("count")][1]


def test_energy_is_power_times_time(run):
    """Catches: samples of other jobs counted in: four GPUs of 700 W at most for 43 s."""
    found = values(run, "nccl_all_reduce")
    watts, seconds = found["power"].value, found["power"].duration_s
    assert 4 * 70 < watts < 4 * 700
    assert found["energy"].value == pytest.approx(watts * seconds)
    assert 30 < found["temperature"].value < 90


def test_what_nccl_chose_for_each_size(recorded_run):
    """Catches: a choice shown at another size: NCCL logs one rank's part of all_gather and reduce_scatter."""
    made = recorded_run("h200x4_nccl_healthy")
    measured = [m for m in gather(made)[0] if m.metric in ("time", "busbw")]
    chose = {
        (m.test.removeprefix("nccl_"), m.params["size_bytes"]): m.detail
        for m in measured
        if "size_bytes" in m.params
    }
    for operation in ("all_gather", "reduce_scatter"):
        assert chose[operation, 1 << 20] == "RING/LL"
        assert chose[operation, 4 << 20] == "RING/SIMPLE"
        assert chose[operation, 256 << 20] == "RING/SIMPLE"
    assert chose["all_reduce", 4 << 20] == "RING/LL128"
    assert "" not in chose.values()


def test_the_state_of_busy_gpus_is_judged(recorded_run):
    """Catches: ECC, NVLink and Xid unread because nothing ran on the GPUs and nothing was sampled."""
    run = recorded_run("h200x4_nccl_busy")
    state = {m.cell: m.value for m in gather(run)[0] if m.test == "gpu_state"}
    assert state[STATE.format("ecc,gpu=1")] == 0
    assert state[STATE.format("xid")] == 0
    assert state[STATE.format("pcie,gpu=1")] is None  # under load, and there was none
    bad = cells(run)
    outcome, reason = bad["node/host_to_device_memcpy_ce/bandwidth/gpu1/-/-/gpu=1"]
    assert outcome is Outcome.INCONCLUSIVE
    assert "in use before the test by process" in reason
