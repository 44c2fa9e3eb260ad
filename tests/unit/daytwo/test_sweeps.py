"""Two networks or configurations side by side: what is a pair, what a ratio says, and what else differs."""

import json
import math
import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from shakedown.benchmarks.nccl.output import parse_nccl
from shakedown.daytwo.sweeps import text as sweep_text
from shakedown.daytwo.sweeps.pairs import (
    Combination,
    OperationSweep,
    Ratio,
    Repeats,
    SweepComparison,
    SweepSide,
    compare_sweeps,
)
from shakedown.daytwo.sweeps.reading import read_side
from shakedown.records.results import Component, Snapshot
from shakedown.references.files import load_profile
from tests.kit.cases import cases
from tests.unit.daytwo.sweep_runs import write_run

JOB = "collective.nccl0.one-process.1x.gpu1"
REDUCE = Combination("nccl-tests", "all_reduce", "float", 1, "one-process")
SLOW = {1 << 10: (30.0, 31.0, 32.0), 1 << 20: (100.0, 101.0, 102.0)}
FAST = {1 << 10: (30.1, 31.1, 32.1), 1 << 20: (50.0, 50.5, 51.0)}


@pytest.fixture
def real(recorded_run) -> Path:
    """Return a run of all operations on four GPUs."""
    return recorded_run("h200x4_nccl")


@pytest.fixture
def sweeps(shakedown):
    """A runner of `shakedown sweeps`: (exit status, standard output, standard error)."""
    return partial(shakedown, "sweeps")


def compared(*folders: Path) -> SweepComparison:
    """Compare runs under the names of their folders, the first being the baseline."""
    return compare_sweeps([read_side(folder.name, folder) for folder in folders])


def side(name: str, times: dict[int, tuple[float, ...]], **facts: str) -> SweepSide:
    """A side with one sweep and nothing to read."""
    points = {size: Repeats(t, tuple(size / x / 1e3 for x in t)) for size, t in times.items()}
    return SweepSide(
        name, name, "site", "then", (OperationSweep(REDUCE, ("n1",), 1 << 20, points, facts, {}),)
    )


def ratio(base: tuple[float, ...], other: tuple[float, ...]) -> Ratio:
    """The time ratio of one size."""
    found = compare_sweeps([side("A", {8: base}), side("B", {8: other})]).pairings[0].rows[0].time_ratio[0]
    assert found is not None
    return found


def test_published_tables_give_the_published_ratios(tmp_path, sweeps):
    """Catches: a ratio the wrong way round, busbw of another formula, an operation left out of the two ends.

    The reductions are printed truncated. Of 256 MB only the reduction is published: B's time is A's with it.
    """
    published = {entry.id: entry.value for entry in load_profile("pt_r7615_bcm57508").entries}
    sizes = {
        "all_reduce": (4, "4b", 1 << 28),
        "reduce_scatter": (48, "48b", 48 * 5592405),
        "sendrecv": (4, "4b", 1 << 28),
    }
    times: dict[str, dict[str, dict[int, tuple[float]]]] = {"A": {}, "B": {}}
    for operation, (small, label, large) in sizes.items():
        name = operation.replace("_", "-")
        share = 1 - published[f"pt-ab-{name}-256m"] / 100
        for which, at_large in (("A", 40_000.0), ("B", 40_000.0 / share)):
            at_small = published[f"pt-{which.lower()}-{name}-{label}"]
            times[which][operation] = {small: (at_small,), large: (at_large,)}
    a, b = (write_run(tmp_path / n, times[n], ranks=6, dtype="half", gpu="NVIDIA L40") for n in "AB")
    status, out, _ = sweeps(f"A={a}", f"B={b}", "--baseline", "B", "--json")
    assert status == 0
    bandwidth = []
    sweeps = {sweep["operation"]: sweep for sweep in json.loads(out)["sweeps"]}
    for operation, (_, label, _) in sizes.items():
        name = operation.replace("_", "-")
        small, large = sweeps[operation]["rows"]
        less = 100 * (1 - small["time_ratio"]["A"]["value"])
        assert math.floor(10 * less) / 10 == published[f"pt-ab-{name}-{label}"]
        assert 100 * (1 - large["time_ratio"]["A"]["value"]) == pytest.approx(
            published[f"pt-ab-{name}-256m"], abs=0.01
        )
        bandwidth += [end["ratio"] for end in sweeps[operation]["extremes"]["A"]["busbw"]]
    assert published["pt-ab-bandwidth-ratio-lowest"] <= min(bandwidth)
    assert max(bandwidth) <= published["pt-ab-bandwidth-ratio-highest"]
    assert [round(x, 2) for x in sorted(bandwidth)] == [5.56] * 4 + [5.88] * 2


def test_a_fault_that_the_plan_does_not_show_is_named(recorded_run):
    """Catches: a ratio without its cause. NCCL_P2P_DISABLE=1 lay in /etc/nccl.conf, where no plan has it."""
    found = compared(*(recorded_run(f"h200x4_nccl_{which}") for which in ("healthy", "p2p_off")))
    (cause,) = found.differing
    assert (cause.fact, cause.values) == ("way of the data", ("P2P/direct pointer", "SHM/direct"))
    assert found.missing == found.changes == found.unknown == ()
    ends = {p.combination.operation: p.extremes[0] for p in found.pairings}
    assert {name: round(end.busbw[0].ratio, 3) for name, end in ends.items()} == {
        "all_gather": 0.081,
        "all_reduce": 0.070,
        "reduce_scatter": 0.078,
    }
    large = [row for p in found.pairings for row in p.rows if row.size_bytes >= 1 << 20]
    assert all(re.fullmatch(r"\+\d+\.\d%", row.time_ratio[0].reading) for row in large)


def test_numbers_are_those_that_nccl_tests_printed(real):
    """Catches: another timing than out of place, another formula of busbw, a repeat that is left out."""
    for sweep in read_side("A", real).sweeps:
        if sweep.combination.tool != "nccl-tests":
            continue
        for number in (1, 3):
            file = real / "raw" / f"{JOB}.a1" / f"nccl_{sweep.combination.operation}.r{number}.txt"
            for size, row in (
                (row.size_bytes, row.out_of_place) for row in parse_nccl(file.read_text()).rows
            ):
                if size and row is not None:
                    found = sweep.points[size]
                    assert isinstance(found, Repeats)
                    assert found.time_us[number - 1] == row.time_us
                    # Half a digit of busbw, and half a digit of the time that it is computed from.
                    close = 0.0051 + max(0.005 / row.time_us, 1e-5) * row.busbw_gb_per_s
                    assert abs(found.busbw_gb_per_s[number - 1] - row.busbw_gb_per_s) <= close


def test_a_forged_result_is_not_looked_at(tmp_path):
    """Catches: numbers from results.jsonl, which anyone can write."""
    folders = [write_run(tmp_path / name, {"all_reduce": SLOW}) for name in "AB"]
    before = compared(*folders)
    for folder in folders:
        (folder / "results.jsonl").write_text('{"test": "nccl_all_reduce", "metric": "time", "value": 1}\n')
    assert compared(*folders).pairings == before.pairings


@cases(
    "file, old, new, says",
    ("nccl_all_reduce.r2.txt", r"\A(?s:.*)\Z", "", "r2.txt"),
    ("nccl_all_reduce.r3.txt", "(?m)^(.* )0$", r"\g<1>N/A", "the data were not checked"),
    ("nccl_all_reduce.r3.txt", "validation: 1", "validation: 0", "the data were not checked"),
    ("nccl_all_reduce.r3.txt", r"(Rank +1 .*\]) .*", r"\1 NVIDIA T4", "ran elsewhere or with another NCCL"),
    ("nccl_all_reduce.r1.txt", r"(?m)^#  Rank  3 .*\n", "", "the list of ranks is not complete: 3"),
    ("job.json", "COMPLETED", "TIMEOUT", "Slurm says TIMEOUT"),
    ("outputs.jsonl", r"(?s).+", "", "the job left no output of it"),
)
def test_what_is_no_result_has_no_ratio(tmp_path, file, old, new, says):
    """Catches: a repeat that ended early, unchecked data, a killed job that goes into a ratio."""
    a, b = (write_run(tmp_path / name, {"all_reduce": SLOW, "broadcast": SLOW}) for name in "AB")
    path = b / "raw" / "collective.all_reduce.n1.a1" / file
    path.write_text(re.sub(old, new, path.read_text()))
    found = compared(a, b)
    assert [p.combination.operation for p in found.pairings] == ["broadcast"]
    assert len(found.missing) == 1
    assert "all_reduce" in found.missing[0] and "no number of B" in found.missing[0]
    assert says in found.missing[0]
    assert str(tmp_path) not in found.missing[0]


@cases(
    "text, says",
    (None, "another process was on GPU 2 of gpu1 at the end: process 4711 (638 MiB)"),
    ("[]", "gpus.gpu1.after.json: not a look at GPUs"),
    ('{"commands": {"gpus": {"out": 1, "exit_code": 0}, "processes": {}}}', "not a look at GPUs"),
)
def test_a_side_that_shared_its_gpus_has_no_ratio(recorded_run, text, says):
    """Catches: a configuration called slower for another program that was on its GPUs."""
    a, b = (recorded_run(f"h200x4_nccl_{which}") for which in ("healthy", "p2p_off"))
    for path in (b / "raw").glob("collective.*/gpus.gpu1.after.json"):
        seen = json.loads(path.read_text())
        uuid = re.findall(r"GPU-[0-9a-f-]+", seen["commands"]["gpus"]["out"])[2]
        seen["commands"]["processes"]["out"] += f"{uuid}, 4711, 638 MiB\n"
        path.write_text(json.dumps(seen) if text is None else text)
    found = compared(a, b)
    assert not found.pairings and found.missing
    assert all(says in line for line in found.missing)


def test_wrong_elements_have_no_ratio(tmp_path):
    """Catches: a fast side whose data are wrong."""
    a = write_run(tmp_path / "A", {"all_reduce": SLOW})
    b = write_run(tmp_path / "B", {"all_reduce": SLOW}, wrong=3)
    found = compared(a, b)
    assert not found.pairings
    assert found.missing == (
        "all_reduce float, 1 node, one-process, n1: no number of B at 1024 B, 1048576 B: 9 wrong elements",
    )


def test_the_last_attempt_is_compared_and_said(tmp_path):
    """Catches: the first of two attempts, or both as one sample, without a word."""
    a, b = (write_run(tmp_path / name, {"all_reduce": SLOW}) for name in "AB")
    for number, times in ((2, SLOW), (10, FAST)):
        again = write_run(tmp_path / str(number) / "B", {"all_reduce": times})
        shutil.copytree(
            again / "raw/collective.all_reduce.n1.a1", b / f"raw/collective.all_reduce.n1.a{number}"
        )
    found = compared(a, b)
    assert found.pairings[0].rows[1].time_us[1].median == 50.5
    assert found.sides[1].notes == ("collective.all_reduce.n1 ran 3 times: only the last is compared",)


def test_outputs_of_another_run_do_not_count(tmp_path):
    """Catches: A's own numbers copied into B, which then differs in nothing."""
    a, b = (write_run(tmp_path / name, {"all_reduce": SLOW, "broadcast": SLOW}) for name in "AB")
    shutil.rmtree(b / "raw/collective.all_reduce.n1.a1")
    shutil.copytree(a / "raw/collective.all_reduce.n1.a1", b / "raw/collective.all_reduce.n1.a1")
    (missing,) = compared(a, b).missing
    assert missing.endswith("no number of B at 1024 B, 1048576 B: the job is of run A, not B")


def test_a_job_that_never_ran_is_said(tmp_path):
    """Catches: a planned sweep that disappears because its folder is not there."""
    a, b = (write_run(tmp_path / name, {"all_reduce": SLOW, "broadcast": SLOW}) for name in "AB")
    shutil.rmtree(b / "raw/collective.all_reduce.n1.a1")
    assert "the job was not run" in compared(a, b).missing[0]


@cases("other", {"dtype": "half"}, {"launcher": "srun"}, {"nodes": ("n1", "n2"), "launcher": "one-process"})
def test_other_measurements_are_no_pair(tmp_path, other):
    """Catches: half against float, one process against srun, one node against two as one ratio."""
    a = write_run(tmp_path / "A", {"all_reduce": SLOW})
    b = write_run(tmp_path / "B", {"all_reduce": SLOW}, **other)
    found = compared(a, b)
    assert not found.pairings
    assert sorted(line.partition(": ")[2] for line in found.missing) == [
        "A did not measure it",
        "B did not measure it",
    ]


def test_pytorch_is_kept_apart(tmp_path):
    """Catches: PyTorch's all_reduce held against that of nccl-tests, or other numbers than its own."""
    a = write_run(tmp_path / "A", {"all_reduce": SLOW}, torch={1 << 20: (60.0,)})
    b = write_run(tmp_path / "B", {"all_reduce": SLOW})
    found = compared(a, b)
    assert [p.combination.tool for p in found.pairings] == ["nccl-tests"]
    assert found.missing == ("PyTorch all_reduce float, 1 node, nccl: B did not measure it",)
    both = compared(a, write_run(tmp_path / "C", {"all_reduce": SLOW}, torch={1 << 20: (30.0,)}))
    assert [p.combination.tool for p in both.pairings] == ["nccl-tests", "PyTorch"]
    row = both.pairings[1].rows[0]
    assert ([v.median for v in row.time_us], row.time_ratio[0].value) == ([60.0, 30.0], 0.5)
    assert row.busbw_gb_per_s[0].median == pytest.approx((1 << 20) / 60e3 * 1.5)


def test_a_size_of_one_side_is_said_and_shown(tmp_path):
    """Catches: a size that is dropped in silence because the other run went only half as far."""
    a = write_run(tmp_path / "A", {"all_reduce": {**SLOW, 1 << 30: (9.0, 9.0, 9.0)}})
    b = write_run(tmp_path / "B", {"all_reduce": SLOW})
    found = compared(a, b)
    assert "no number of B at 1073741824 B: not planned" in found.missing[0]
    row = found.pairings[0].rows[-1]
    assert (row.size_bytes, row.time_us[0].median, row.time_us[1], row.time_ratio) == (
        1 << 30,
        9.0,
        None,
        (None,),
    )
    assert found.pairings[0].extremes[0].busbw[1].size_bytes == 1 << 20


def test_groups_of_nodes_are_paired_by_name(tmp_path):
    """Catches: node n1 of one run held against n2 of the other when both measured both."""
    folders = []
    for name, first, second in (("A", SLOW, FAST), ("B", FAST, SLOW)):
        folder = write_run(tmp_path / name, {"all_reduce": first}, nodes=("n1",))
        jobs = json.loads((folder / "jobs.json").read_text())
        write_run(folder, {"all_reduce": second}, nodes=("n2",))
        more = json.loads((folder / "jobs.json").read_text())
        (folder / "jobs.json").write_text(json.dumps({**jobs, "jobs": jobs["jobs"] + more["jobs"]}))
        folders.append(folder)
    found = compared(*folders)
    assert [p.nodes for p in found.pairings] == [(("n1",), ("n1",)), (("n2",), ("n2",))]
    assert [round(p.rows[1].time_ratio[0].value, 2) for p in found.pairings] == [0.5, 2.0]


def test_other_nodes_are_a_pair_that_says_so(tmp_path):
    """Catches: two clusters that cannot be compared, or are without a word of their nodes."""
    a = write_run(tmp_path / "A", {"all_reduce": SLOW})
    b = write_run(tmp_path / "B", {"all_reduce": SLOW}, nodes=("m7",), system="other")
    told = {d.fact: d.values for d in compared(a, b).differing}
    assert told == {"system": ("site", "other"), "nodes": ("n1", "m7")}


def test_a_folder_with_one_sweep_twice_is_refused(tmp_path, sweeps):
    """Catches: the second of two jobs that silently takes the place of the first."""
    a, b = (write_run(tmp_path / name, {"all_reduce": SLOW}) for name in "AB")
    jobs = json.loads((b / "jobs.json").read_text())
    twins = [{**job, "name": f"{job['name']}{suffix}"} for job in jobs["jobs"] for suffix in ("", ".again")]
    (b / "jobs.json").write_text(json.dumps({**jobs, "jobs": twins}))
    status, _, error = sweeps(f"A={a}", f"B={b}")
    assert status == 2 and "two jobs measure all_reduce float" in error


@cases(
    "base, other, reads",
    ((100, 101, 102), (100.5, 101.5, 102.5), "no difference"),
    ((100, 101, 102), (120, 121, 122), "+19.8%"),
    ((100, 101, 102), (60, 61, 62), "-39.6%"),
    ((100, 101, 130), (110, 121, 122), "within the spread"),
    ((60, 100, 140), (61, 101, 141), "within the spread"),  # near 1, and nobody knows
    ((100, 101, 101), (102, 103, 130), "within the spread"),
    ((100,), (150,), "one sample, no spread"),
    ((100,), (100,), "one sample, no spread"),
    ((100, 101, 102), (200,), "one sample, no spread"),
)
def test_a_ratio_reads_as_its_repeats_allow(base, other, reads):
    """Catches: a difference claimed within noise or from one sample, equality from scattered repeats."""
    assert ratio(base, other).reading == reads


def test_the_spread_holds_every_repeat():
    """Catches: a spread of one side alone, or of the medians."""
    found = ratio((100, 110, 120), (200, 230, 240))
    assert (found.value, found.least, found.most) == (230 / 110, 200 / 120, 240 / 100)


def test_the_noise_floor_is_the_users():
    """Catches: an option that nothing reads."""
    sides = [side("A", {8: (100, 100.1)}), side("B", {8: (102, 102.1)})]
    readings = [
        compare_sweeps(sides, floor).pairings[0].rows[0].time_ratio[0].reading for floor in (0.03, 0.01)
    ]
    assert readings == ["no difference", "+2.0%"]


def test_ends_are_of_time_below_the_limit_and_of_busbw_from_there():
    """Catches: a latency of 8 GiB or a bandwidth of 8 B among the least and most that are quoted."""
    base = {8: (10.0, 10.0), 1 << 19: (20.0, 20.0), 1 << 20: (40.0, 40.0), 1 << 30: (80.0, 80.0)}
    other = {8: (30.0, 30.0), 1 << 19: (30.0, 30.0), 1 << 20: (10.0, 10.0), 1 << 30: (800.0, 800.0)}
    ends = compare_sweeps([side("A", base), side("B", other)]).pairings[0].extremes[0]
    assert [(e.ratio, e.size_bytes) for e in ends.time] == [(1.5, 1 << 19), (3.0, 8)]
    assert [(e.ratio, e.size_bytes) for e in ends.busbw] == [(0.1, 1 << 30), (4.0, 1 << 20)]


def test_everything_that_differs_is_named(tmp_path, real):
    """Catches: another GPU, NCCL, number of ranks, variable or way of the data passed over."""
    log = (real / "raw" / f"{JOB}.a1" / "nccl_broadcast.log").read_text()
    a = write_run(tmp_path / "A", {"all_reduce": SLOW}, log=log, torch={1 << 20: (1.0,)})
    b = write_run(
        tmp_path / "B",
        {"all_reduce": SLOW},
        ranks=2,
        gpu="NVIDIA H100",
        nccl=22706,
        torch={1 << 20: (1.0,)},
        variables={"NCCL_P2P_DISABLE": "1"},
        log=re.sub(r"via P2P/\S.*", "via SHM/direct/direct", log).replace("2.28.9", "2.27.6"),
    )
    found = {(d.fact, d.values, d.sweeps) for d in compared(a, b).differing}
    assert found == {
        ("NCCL_P2P_DISABLE", ("not set", "1"), ()),
        ("GPU", ("NVIDIA H200", "NVIDIA H100"), ("nccl-tests",)),
        ("ranks", ("4", "2"), ()),
        ("NCCL", ("2.28.9", "2.27.6"), ("nccl-tests",)),
        ("way of the data", ("P2P/direct pointer", "SHM/direct"), ("nccl-tests",)),
    }


def test_a_secret_in_a_variable_is_not_shown(tmp_path):
    """Catches: a token that a page carries to a vendor."""
    a = write_run(tmp_path / "A", {"all_reduce": SLOW}, torch={1 << 20: (1.0,)})
    variables = {"HF_TOKEN": "abcdefgh", "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"}
    b = write_run(tmp_path / "B", {"all_reduce": SLOW}, torch={1 << 20: (1.0,)}, variables=variables)
    told = {d.fact: d.values for d in compared(a, b).differing}
    assert told == {"HF_TOKEN": ("not set", "REDACTED"), "NCCL_IB_HCA": ("not set", "=mlx5_0:1,mlx5_1:1")}


def test_inventories_are_compared_or_said_to_be_absent():
    """Catches: new firmware between A and B that a ratio is put down to the network for."""

    def inventory(host: str, firmware: str) -> Snapshot:
        nic = Component(host=host, kind="nic", name="mlx5_0", attributes={"firmware": firmware})
        return Snapshot(run="r", taken="then", components=(nic,))

    def both(one: Snapshot | None, other: Snapshot | None) -> SweepComparison:
        sweeps = side("", {8: (1.0, 1.0)}).sweeps
        return compare_sweeps([SweepSide(n, n, "s", "t", sweeps, i) for n, i in (("A", one), ("B", other))])

    old, new = inventory("n1", "1"), inventory("n1", "2")
    assert both(old, new).changes == ("B: n1 nic mlx5_0 firmware: 1 -> 2",)
    assert both(old, new).unknown == ()
    assert both(old, None).unknown == (
        "B without inventory: hardware, firmware and drivers are not compared",
    )
    other = both(old, inventory("m1", "2"))
    assert (other.changes, other.unknown) == ((), ("B is of other hosts: the inventories are not compared",))


def test_power_and_energy_of_each_operation_are_beside_it(real):
    """Catches: the draw of another operation's time, or of one side for both."""
    a = read_side("A", real)
    draws = {s.combination.operation: s.draw for s in a.sweeps if s.combination.tool == "nccl-tests"}
    assert (round(draws["all_reduce"].power_w), round(draws["all_reduce"].energy_j, -1)) == (717, 31160)
    found = compare_sweeps([a, side("B", {8: (1.0, 1.0)})])
    assert found.pairings[0].draws == (draws["all_reduce"], None)
    ((_, shown),) = sweep_text.draws(found)
    assert shown == ["717.4 W, 31,160 J, 45 °C", "–"]


def test_exit_status_and_table(tmp_path, sweeps):
    """Catches: a comparison with holes that ends like a whole one; a table without what differs on top."""
    a = write_run(tmp_path / "tcp", {"all_reduce": SLOW}, variables={"NCCL_IB_DISABLE": "1"})
    b = write_run(tmp_path / "roce", {"all_reduce": FAST})
    status, out, _ = sweeps(f"roce={b}", f"tcp={a}", "--baseline", "tcp")
    lines = out.splitlines()
    assert status == 0
    small, large = "time of small messages 1 to 1 times tcp's", "busbw of large ones 2 to 2 times tcp's"
    assert lines[0] == f"nccl-tests, roce: {small}, {large}"
    assert "differs  NCCL_IB_DISABLE: tcp: 1; roce: not set" in lines
    assert lines[-1].split() == [
        "1",
        "MiB",
        "101",
        "50.50",
        "15.57",
        "31.15",
        "0.500",
        "0.490–0.510",
        "-50.0%",
        "2.000",
    ]
    c = write_run(tmp_path / "c", {"all_reduce": {1 << 10: (1.0,)}})
    assert sweeps(f"tcp={a}", f"c={c}")[0] == 3


@cases(
    "arguments, says",
    (["A"], "is not NAME=RUN"),
    (["A={a}"], "1 given, two to 4"),
    (["A={a}", "A={b}"], "given twice"),
    (["A={a}", "B={a}"], "the same run"),
    (["A={a}", "B={b}", "--baseline", "C"], "no side 'C' to be the baseline"),
    (["A={a}", "B=/nowhere"], "is not a run folder"),
    (["A={a}", "B={mpi}"], "neither nccl-tests nor PyTorch"),
    (["A={a}", "B={half}"], "no size has a number on all sides"),
    (["A={a}", "B={killed}"], "Slurm says TIMEOUT"),
    (["A={a}", "B={damaged}"], "jobs.json"),
    (["A={a}", "\x1b[31m={b}"], "is no name for a side"),
    (["A={a}", "B={b}", "--html", "{a}/none/ab.html"], "no place for a file"),
    (["A={a}", "B={b}", "--html", "{a}"], "no place for a file"),
    ([f"{n}={{a}}" for n in "ABCDE"], "5 given"),
)
def test_wrong_input_is_one_line_and_writes_nothing(tmp_path, sweeps, arguments, says):
    """Catches: a traceback, a page of half a comparison, an escape sequence that reaches the terminal."""
    runs = {
        "a": write_run(tmp_path / "a", {"all_reduce": SLOW}),
        "b": write_run(tmp_path / "b", {"all_reduce": FAST}),
        "half": write_run(tmp_path / "half", {"all_reduce": FAST}, dtype="half"),
        "mpi": write_run(tmp_path / "mpi", {}),
        "damaged": write_run(tmp_path / "damaged", {"all_reduce": FAST}),
    }
    killed = write_run(tmp_path / "killed", {"all_reduce": FAST, "all_gather": FAST})
    job = killed / "raw/collective.all_reduce.n1.a1/job.json"
    job.write_text(job.read_text().replace("COMPLETED", "TIMEOUT"))
    runs["killed"] = killed
    path = runs["damaged"] / "jobs.json"
    path.write_text(path.read_text().replace('"sizes": [', '"sizes": ["x", '))
    page = tmp_path / "ab.html"
    given = [argument.format(**runs) for argument in arguments]
    status, out, error = sweeps("--html", page, *given)
    assert (status, out, error.count("\n"), page.exists()) == (2, "", 1, False), error
    assert says in error
    assert error.strip().isprintable()
