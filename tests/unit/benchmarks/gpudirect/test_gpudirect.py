"""GPUDirect by perftest, from the site's wish to the verdict; never run on GPUs with RDMA NICs."""

from pathlib import Path

import pytest
from gdr_run import GdrRun, planned, site_document

from shakedown.benchmarks.gpudirect.output import used
from shakedown.records.errors import BadInput
from tests.kit.site import hosts

FAR_PROFILE = (Path(__file__).parent / "profiles/far_profile.yml").read_text()


@pytest.fixture
def run(tmp_path):
    """Return a maker of runs."""

    def make(profile: str = "", **asked: object) -> GdrRun:
        file = tmp_path / "site.yml"
        file.write_text(profile)
        return GdrRun(tmp_path / "r1", file if profile else None, **asked)

    return make


def outcomes(verdict):
    """Return the outcomes of cells that are not PASS, by metric and memory."""
    found = {}
    for cell in verdict.cells:
        if cell.outcome.value != "PASS":
            _, _, metric, *_, params = cell.cell.split("/")
            memory = dict(pair.split("=") for pair in params.split(","))["memory"]
            found[metric, memory] = cell.outcome.value, cell.reason
    return found


def test_every_nic_operation_memory_and_direction_is_planned():
    """Catches: a NIC, an operation, a memory or a direction that nobody measures."""
    plan, jobs = planned(site_document(3, operations=["write", "read", "send"], bidirectional=True))
    cells = {
        (item.test, item.params["memory"], item.metric, pair, rail, direction)
        for item in plan.items
        for _, pair, rail, direction in item.cells()
    }
    pairs, rails, tests = 3, 2, 3
    # Bandwidth of three memories, share and memory of two; forward, reverse, and both at once.
    assert len(cells) == pairs * rails * tests * 3 * (3 + 2 + 2)
    (job,) = (job for job in jobs.jobs if job.kind == "gpudirect")
    assert job.settings["memory"] == {"interface": "cuda", "path": "dma-buf", "gpus": 4}
    assert len(job.settings["operations"]) == tests * 3


def test_a_site_without_gpus_on_two_nodes_is_told():
    """Catches: a plan that silently leaves GPUDirect out."""
    inventory = site_document(2)
    inventory["_meta"]["hostvars"]["n2"]["gpus"] = []
    for host in hosts(inventory):
        host["acceptance"]["perftest"] = [{"test": "ib_write_bw", "size_bytes": 65536, "iterations": 9}]
    plan, jobs = planned(inventory)
    assert not [job for job in jobs.jobs if job.kind == "gpudirect"]
    assert any("two nodes with GPUs" in caveat for caveat in plan.caveats)


@pytest.mark.parametrize("asked", [{}, {"path": "peer-mem"}, {"interface": "rocm"}, {"bidirectional": True}])
def test_a_healthy_run_passes(run, asked):
    """Catches: an output of perftest with GPU memory that is refused, a near GPU that is judged wrongly."""
    healthy = run(**asked)
    healthy.write()
    verdict = healthy.judged()
    assert verdict.outcome.value == "PASS", [(c.cell, c.reason) for c in verdict.cells][:4]


def test_a_near_gpu_that_is_slow_fails_absolutely_and_against_host_memory(run):
    """Catches: ACS that sends GPU traffic over the host bridge, which NCCL's log does not show."""
    slow = run()
    slow.gbps["near"] = 200.0
    slow.write()
    verdict = slow.judged()
    assert verdict.outcome.value == "FAIL"
    assert {key for key, (outcome, _) in outcomes(verdict).items() if outcome == "FAIL"} == {
        ("bandwidth", "near"),
        ("share_of_host", "near"),
    }


def test_a_slow_nic_is_not_excused_by_host_memory_that_is_as_slow(run):
    """Catches: a ratio alone, which passes a link at half rate."""
    slow = run()
    slow.gbps = {"host": 180.0, "near": 180.0, "far": 170.0}
    slow.write()
    failed = {key for key, (outcome, _) in outcomes(slow.judged()).items() if outcome == "FAIL"}
    assert failed == {("bandwidth", "host"), ("bandwidth", "near")}


def test_a_far_gpu_is_shown_unless_the_site_signs_a_floor(run):
    """Catches: a floor for far GPUs that no source gives."""
    slow = run()
    slow.gbps["far"] = 40.0
    slow.write()
    assert slow.judged().outcome.value == "PASS"


def test_a_far_gpu_below_the_floor_that_the_site_signed_fails(run):
    """Catches: a far GPU that is measured and never judged."""
    slow = run(FAR_PROFILE)
    slow.gbps["far"] = 200.0
    slow.write()
    verdict = slow.judged()
    failed = {key for key, (outcome, _) in outcomes(verdict).items() if outcome == "FAIL"}
    assert (verdict.outcome.value, failed) == ("FAIL", {("bandwidth", "far")})


@pytest.mark.parametrize(
    ("pick", "says"),
    [
        ((0, "peer-mem"), "n2: perftest reached the GPU by peer-mem, dma-buf was ordered"),
        ((1, "dma-buf"), "n2: perftest used the GPU at 2a:00, not 0000:18:00.0"),
        (None, "n2: perftest used host memory, that of GPU 0 (0000:18:00.0) was ordered"),
    ],
)
def test_another_memory_than_ordered_fails_and_counts_as_no_measurement(run, pick, says):
    """Catches: a fast value of host memory, of the wrong GPU or path, taken for GPUDirect; at either end."""
    wrong = run()
    wrong.picks["n2", "near"] = pick
    wrong.write()
    verdict = wrong.judged()
    found = outcomes(verdict)
    assert verdict.outcome.value == "FAIL"
    assert found["wrong_memory", "near"][0] == "FAIL"
    assert says in found["wrong_memory", "near"][1]
    assert found["bandwidth", "near"][0] == "INCONCLUSIVE"
    # On both rails, whether n2 is perftest's client or its server.
    failed = [c for c in verdict.cells if "/wrong_memory/" in c.cell and c.outcome.value == "FAIL"]
    assert len(failed) == 4


def test_a_perftest_without_cuda_is_not_run_in_its_own_words(run):
    """Catches: a missing build option that reads as a fault of the NICs, or passes unseen."""
    without = run()
    without.reason = "n1 rail0: ib_write_bw --use_cuda=0 --use_cuda_dmabuf --version: Unsupported memory type"
    without.write()
    verdict = without.judged()
    assert verdict.outcome.value == "NOT-RUN"
    assert all(o == "NOT-RUN" and "Unsupported memory type" in r for o, r in outcomes(verdict).values())


def test_a_share_needs_the_host_memory_of_the_same_nics(run):
    """Catches: a ratio against nothing, or against GPU memory."""
    alone = run()
    alone.write()
    for name in [n for n in alone.records if ".host." in n]:
        (alone.raw / name).unlink()
        del alone.records[name]
    found = outcomes(alone.judged())
    assert found["share_of_host", "near"][0] == "INCONCLUSIVE"
    assert "is missing" in found["share_of_host", "near"][1]


def test_nothing_printed_is_no_gpu():
    """Catches: a path that is believed without perftest having said it."""
    assert not used("Picking device No. 0\n").gpu
    assert not used("x using DMA-BUF for GPU buffer address at 0x1\n").gpu


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"operations": ["write", "write"]}, "names one twice"),
        ({"gpus": []}, "gpus: must not be empty"),
        ({"interface": "opencl"}, "interface"),
        ({"path": "p2p"}, "path"),
    ],
)
def test_a_wrong_wish_is_refused_by_its_key(asked, says):
    """Catches: a wish that is quietly read as another."""
    with pytest.raises(BadInput, match=says):
        planned(site_document(2, **asked))
