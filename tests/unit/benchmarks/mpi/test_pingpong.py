"""mpi4py's ping-pong: each bandwidth has its time beside it, and as many samples as were ordered."""

from pathlib import Path

import pytest

from shakedown.benchmarks.base.contract import Output
from shakedown.benchmarks.mpi.benchmark import BENCHMARK
from shakedown.benchmarks.mpi.output import MpiSettings, moved, mpi
from shakedown.records.base import Stage
from shakedown.records.errors import BadInput
from shakedown.records.results import OutputRecord
from shakedown.run.nic_counters import JobFolder
from tests.kit import records

# As mpi4py 4.0.0 to 4.1.1 print it (src/mpi4py/bench.py).
TIMED = """\
# MPI PingPong Test
# Size [B]  Bandwidth [MB/s] | Time Mean [s] \u00b1 StdDev [s]  Samples
     16384              2.87 | 5.7121300e-03 \u00b1 1.2000e-04       10
     32768              6.22 | 5.2688100e-03 \u00b1 2.2000e-04       10
   2097152            240.10 | 8.7345000e-03 \u00b1 3.1000e-04       10
"""
BARE = "\n".join(line.split(" |")[0] for line in TIMED.splitlines()) + "\n"
SIZES = {16384, 32768, 2097152}


def output(text: str, *, timed: bool = True) -> Output[MpiSettings]:
    """The output of a ping-pong of three sizes."""
    order = MpiSettings(min_bytes=16384, max_bytes=2097152, iterations=10, timed=timed)
    rows = [*text.splitlines(keepends=True)]
    # The sizes between are those of no interest here: each as good as the last.
    for size in (x for x in order.powers_of_two() if x not in SIZES):
        row = f"{size:10d}{size / 1e-3 / 1e6:18.2f}"
        rows.insert(
            -1, row + (" | 1.0000000e-03 \u00b1 1.0000e-04       10\n" if "Samples" in text else "\n")
        )
    record = OutputRecord(
        tool="mpi",
        test="mpi_pingpong",
        file="mpi_pingpong.txt",
        nodes=("n1", "n2"),
        exit_code=0,
        started="2026-11-20T13:32:12Z",
        duration_s=8.0,
    )
    return Output("".join(rows), record, order, JobFolder(Path("r1")))


def test_bandwidths_are_read_with_their_times():
    """Catches: a table with times that is not read, and bytes that the NICs are not asked for."""
    values = {value[4]["size_bytes"]: value[1] for value in mpi(output(TIMED))}
    assert (values[16384], values[2097152]) == (0.00287, 0.2401)
    sent = 10 * sum(values)
    assert list(moved(output(TIMED))) == [("n1", None, sent, sent), ("n2", None, sent, sent)]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("   2.87 ", "   9.87 ", "bandwidth contradicts size and mean time"),
        ("   2.87 ", "   2.88 ", "bandwidth contradicts size and mean time"),
        (" 240.10 ", " 440.10 ", "bandwidth contradicts size and mean time"),
        ("5.7121300e-03", "5.7121300e-04", "bandwidth contradicts size and mean time"),
        ("5.7121300e-03", "0.0000000e+00", "bandwidth contradicts size and mean time"),
        ("1.2000e-04       10", "1.2000e-04        1", "16384 bytes: 1 sample, planned were 10"),
        (" | 5.7121300e-03 \u00b1 1.2000e-04       10", "", "not a row of the ping-pong table"),
    ],
)
def test_a_bandwidth_that_its_time_does_not_give_is_refused(old, new, words):
    """Catches: a bandwidth edited alone, or of fewer samples than were ordered, which passed."""
    assert TIMED.count(old) == 1
    with pytest.raises(BadInput, match=words):
        list(mpi(output(TIMED.replace(old, new))))


def test_bandwidths_alone_count_only_where_they_were_ordered_so():
    """Catches: times taken out of the table, so that an edited bandwidth has no second witness."""
    with pytest.raises(BadInput, match="no time beside the bandwidth"):
        list(mpi(output(BARE)))
    assert len(list(mpi(output(BARE, timed=False)))) == len(list(mpi(output(TIMED))))


@pytest.mark.parametrize("timed", [True, False])
def test_what_is_ordered(tmp_path, timed):
    """Catches: times not asked for, or messages above 1 MiB sent ten times, whatever was ordered."""
    order = MpiSettings(min_bytes=4, max_bytes=8, iterations=70, timed=timed)
    spec = records.job(
        name="collective.mpi_pingpong",
        kind="mpi_pingpong",
        stage=Stage.COLLECTIVE,
        tests=("mpi_pingpong",),
        nodes=("n1", "n2"),
        expected_s=1,
        settings=order.model_dump(),
    )
    launch = BENCHMARK.jobs["mpi_pingpong"].launch(spec, tmp_path)
    assert {"--loop=70", "--loop-large=70", "--loop-huge=70"} < set(launch.words)
    assert ("--no-stats" in launch.words) is not timed
    # Its heading has a letter that no other language's encoding of a site must spoil.
    assert launch.variables["PYTHONIOENCODING"] == "utf-8"
