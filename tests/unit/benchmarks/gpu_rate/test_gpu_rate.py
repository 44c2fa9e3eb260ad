"""The speed of every GPU: from the site's wish to the verdict, with recorded windows and samples of one H200.

`h200_windows.tar.xz` holds five runs of the job on one H200: two with nothing else on the GPU, three with a
second process that works 3 of every 100 ms. A node of eight GPUs is made of stretches of them: eight
different GPUs were never measured.
"""

import csv
import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shakedown.benchmarks.gpu_rate.job import start_together
from shakedown.benchmarks.gpu_rate.output import Shown, explain, lowest, parse_gpu_rate
from shakedown.daytwo.history.fleet_references import accepted_cards
from shakedown.daytwo.nightly.plan import alone_slots
from shakedown.records.reading import BadInput
from tests.kit.archive import unpack
from tests.kit.cases import cases
from tests.kit.files import edited
from tests.kit.job import output, write_outputs
from tests.kit.refusal import refused
from tests.kit.run import collected, raw_of, write_run
from tests.kit.site import one_node, plan_site

PROFILES = Path(parse_gpu_rate.__code__.co_filename).parents[2] / "references" / "profiles"
RECORDED_RUNS = Path(__file__).resolve().parents[3] / "runs"
WINDOWS = 10


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """The recorded runs, unpacked."""
    folder = tmp_path_factory.mktemp("h200")
    unpack(Path(__file__).with_name("h200_windows.tar.xz"), folder)
    return folder


def lines_of(run: Path, gpu: int, begin: int, work="bf16"):
    """Ten windows of a recorded run as those of GPU `gpu`, and where they lie in time."""
    every = [json.loads(line) for line in (run / "gpu_rate.n1.jsonl").read_text().splitlines()]
    windows = [line for line in every if line.get("work") == work][begin : begin + WINDOWS]
    assert len(windows) == WINDOWS
    own = f"{gpu + 1:08d}-0000-0000-0000-000000000000"
    return [{**every[0], "gpu": gpu, "uuid": own}, *windows, every[-1]]


def node_of(folder: Path, parts, work="bf16"):
    """Write output, samples and looks of a node whose GPUs are these stretches of recorded runs."""
    output, samples, first = [], [], None
    look = json.loads((parts[0][0] / "gpus.n1.after.json").read_text())
    gpus, processes = [], []
    for gpu, (run, begin) in enumerate(parts):
        lines = lines_of(run, gpu, begin, work)
        start = lines[1]["end"] - lines[1]["ms"] / 1e3
        first = first or start
        shift = first - start  # all GPUs work at the same time
        output += [json.dumps({**x, "end": x["end"] + shift} if "end" in x else x) for x in lines]
        rows = list(csv.reader((run / "gpus.n1.samples.csv").open(), skipinitialspace=True))
        header = rows[0]
        samples += [[f"{float(r[0]) + shift:.3f}", str(gpu), *r[2:]] for r in rows[1:]]
        seen = json.loads((run / "gpus.n1.after.json").read_text())["commands"]
        uuid = re.search(r"GPU-[0-9a-f-]+", seen["gpus"]["out"])[0]
        mine = f"GPU-{gpu + 1:08d}-0000-0000-0000-000000000000"
        row = seen["gpus"]["out"].splitlines()[1].split(", ")
        gpus.append(", ".join([str(gpu), mine, f"00000000:{gpu:02d}:00.0", *row[3:]]))
        processes += [x.replace(uuid, mine) for x in seen["processes"]["out"].splitlines()[1:]]
    head = look["commands"]["gpus"]["out"].splitlines()[0]
    look["commands"]["gpus"]["out"] = "\n".join([head, *gpus, ""])
    head = look["commands"]["processes"]["out"].splitlines()[0]
    look["commands"]["processes"]["out"] = "\n".join([head, *processes, ""])
    (folder / "gpus.n1.after.json").write_text(json.dumps(look))
    (folder / "gpu_rate.n1.jsonl").write_text("\n".join([*output, ""]))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *sorted(samples, key=lambda row: float(row[0]))])
    (folder / "gpus.n1.samples.csv").write_text(text.getvalue().replace(",", ", "))


def planned(gpus=8, **options):
    """Plan and jobs of one node with so many H200, and the site."""
    asked = {"work": ["bf16"], "seconds": WINDOWS, **options}
    software = {"pytorch": "/opt/bin/python3"}
    site = one_node("h200_gpu_rate", gpus, software, scope={"gpu": "H200-SXM"}, gpu_rate=asked)
    return *plan_site(site, [PROFILES / "h200_gpu_rate.yml"]), site


@pytest.fixture
def judged(tmp_path):
    """Judge a node of GPUs that are stretches of recorded runs; `spoil` may change its files before."""

    def run(parts, spoil=lambda raw: None, work="bf16", **options):
        plan, jobs, _ = planned(len(parts), work=[work], **options)
        folder, (spec,) = tmp_path / "r1", jobs.jobs
        raw = raw_of(write_run(folder, plan, jobs), spec)
        node_of(raw, parts, work)
        spoil(raw)
        about = {"test": f"gpu_rate_{work}", "started": "2026-11-23T17:15:40.000Z", "duration_s": 30.0}
        write_outputs(raw, [output("gpu-rate", "gpu_rate.n1.jsonl", "n1", **about)], "n1")
        return collected(folder)

    return run


def healthy(recorded, gpus, offset=0):
    """So many stretches of the two undisturbed runs, each beginning elsewhere."""
    places = [("healthy", n) for n in range(11)] + [("healthy2", n) for n in range(21)]
    return [(recorded / run, at) for run, at in (places[(offset + 4 * n) % 32] for n in range(gpus))]


def failed(verdict):
    """The failed cells, by the end of their names, with reasons."""
    return {cell.cell: cell.reason for cell in verdict.cells if cell.outcome.value == "FAIL"}


@pytest.mark.slow
@pytest.mark.parametrize("offset", range(10))
def test_healthy_gpus_are_not_blamed(judged, recorded, offset):
    """Catches a GPU blamed for what windows of one GPU differ by from second to second."""
    verdict = judged(healthy(recorded, 8, offset))
    assert verdict.outcome.value == "PASS", failed(verdict)


@pytest.mark.parametrize(
    ("run", "place"),
    [
        pytest.param(run, place, marks=() if (run, place) == ("planted", 5) else pytest.mark.slow)
        for run in ("planted", "planted1", "planted2")
        for place in (0, 5)
    ],
)
def test_one_gpu_at_three_percent_less_is_named_with_its_reason(judged, recorded, run, place):
    """Catches the straggler among eight that a floor of 5 % lets pass, or that is named without a reason."""
    parts = healthy(recorded, 8)
    parts[place] = (recorded / run, 2)
    found = failed(judged(parts))
    (cell,) = found
    assert f"gpu={place}" in cell and "check=straggler" in cell
    assert re.search(
        rf"GPU {place} is [23]\.\d% behind: .*; another process: process \d+ \(638 MiB\)", found[cell]
    )


@pytest.fixture(scope="session")
def staged(tmp_path_factory):
    """Raw files of runs through the whole stage on one H200 (tests/runs/h200_rate_*), by their names."""
    found = {}
    for made in sorted(RECORDED_RUNS.glob("h200_rate_*")):
        folder = tmp_path_factory.mktemp(made.name)
        unpack(made / "run.tar.xz", folder)
        found[made.name.removeprefix("h200_rate_")] = folder / "raw/node.gpu_rate.a1"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("work", ["bf16", "copy"])
def test_eight_runs_of_the_stage_make_a_healthy_node(judged, staged, work):
    """Catches a GPU blamed for what eight runs of one GPU, minutes apart, differ by."""
    verdict = judged([(staged[f"{n}"], 0) for n in range(1, 9)], work=work)
    assert not any("straggler" in cell for cell in failed(verdict)), failed(verdict)


@pytest.mark.slow
def test_windows_take_the_time_that_the_clock_tells(recorded):
    """Catches a rate and its time edited alike, which bear each other out."""
    lines = (recorded / "healthy/gpu_rate.n1.jsonl").read_text().splitlines()
    faster = []
    for line in map(json.loads, lines):
        if line["type"] == "window":
            line |= {"ms": line["ms"] / 1.05, "rate": line["rate"] * 1.05}
        faster.append(json.dumps(line))
    with pytest.raises(BadInput, match=r"19 windows of bf16 took [0-9.]+ s, [0-9.]+ s by the clock"):
        parse_gpu_rate("\n".join(faster) + "\n")


@pytest.mark.parametrize("work", ["bf16", "copy"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_run_of_the_stage_beside_another_process_is_the_straggler(judged, staged, number, work):
    """Catches the straggler of 3 % that the stage measured, passed among seven of its own healthy runs."""
    parts = [(staged[f"{n}"], 0) for n in range(1, 9)]
    parts[number] = (staged[f"busy_{number}"], 0)
    found = {cell: why for cell, why in failed(judged(parts, work=work)).items() if "straggler" in cell}
    (cell,) = found
    assert f"gpu={number}" in cell
    assert re.search(rf"GPU {number} is [34]\.\d% behind: .*; another process: process \d+", found[cell])


def test_a_figure_beside_another_process_does_not_pass(judged, staged):
    """Catches: a rate within its reference, of a GPU that somebody else worked on; others blamed with it."""

    def one_more(raw):
        with edited(raw / "gpus.n1.after.json") as look:
            uuid = re.findall(r"GPU-[0-9a-f-]+", look["commands"]["gpus"]["out"])[1]
            look["commands"]["processes"]["out"] += f"{uuid}, 4711, 638 MiB\n"

    verdict = judged([(staged[f"{n}"], 0) for n in range(1, 9)], spoil=one_more)
    bad = {cell.cell: cell for cell in verdict.cells}
    assert verdict.outcome.value == "INCONCLUSIVE"
    assert sorted(bad) == [
        f"node/gpu_rate_bf16/{end}"
        for end in ("rate/n1/-/-/gpu=1", "rate_p1/n1/-/-/gpu=1", "wrong/n1/-/-/check=straggler,gpu=1")
    ]
    said = "another process was on GPU 1 of n1 at the end: process 4711 (638 MiB)"
    assert all(cell.rule == "busy" and said in cell.reason for cell in bad.values())


@pytest.mark.slow
def test_a_straggler_of_copies_is_named_too(judged, recorded):
    """Catches copies that only products are compared for."""
    parts = [(recorded / "healthy", n) for n in (0, 2, 4, 6, 8, 10, 1)] + [(recorded / "planted", 3)]
    (cell,) = failed(judged(parts, work="copy"))
    assert "gpu_rate_copy" in cell and "gpu=7" in cell


def samples(change):
    """Spoil the samples of GPU 3: `change` gets a row and returns it."""

    def spoil(raw):
        file = raw / "gpus.n1.samples.csv"
        header, *rows = [line.split(", ") for line in file.read_text().splitlines()]
        rows = [change(dict(zip(header, row, strict=True))) if row[1] == "3" else row for row in rows]
        rows = [list(row.values()) if isinstance(row, dict) else row for row in rows]
        file.write_text("\n".join(", ".join(row) for row in [header, *rows]) + "\n")
        with edited(raw / "gpus.n1.after.json") as look:
            listed = look["commands"]["processes"]
            listed["out"] = listed["out"].splitlines()[0] + "\n"

    return spoil


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_a_look_that_is_none_is_named(judged, recorded, text):
    """Catches: a reader that fell over another file than the one that its message names."""
    verdict = judged(healthy(recorded, 8), lambda raw: (raw / "gpus.n1.after.json").write_text(text))
    assert verdict.outcome == "INCONCLUSIVE"
    assert all("gpus.n1.after.json: not a look at GPUs" in cell.reason for cell in verdict.cells)


CLOCK, WHY, HEAT, DRAW = (
    "clocks.current.sm [MHz]",
    "clocks_event_reasons.active",
    "temperature.gpu",
    "power.draw [W]",
)


@pytest.mark.slow
@cases(
    "change, said",
    (
        {WHY: "0x0000000000000020", HEAT: "89", CLOCK: "1410"},
        "temperature: software thermal slowdown in 100%",
    ),
    (
        {WHY: "0x0000000000000048", HEAT: "91", CLOCK: "1380"},
        "temperature: hardware thermal slowdown in 100%",
    ),
    ({WHY: "0x0000000000000088", CLOCK: "1380"}, "power: hardware slowdown in 100%.*hardware power brake"),
    ({WHY: "0x0000000000000002", CLOCK: "1395", DRAW: "640"}, "clock: clocks set by a person"),
    ({CLOCK: "1395"}, r"clock: \d\.\d% below the others' 14\d\d MHz, at its power cap"),
    ({WHY: "0x0000000000000000", CLOCK: "1395"}, "clock: .*without a reason of the driver"),
    ({}, "not explained: its clock is not lower"),
)
def test_the_samples_say_why(judged, recorded, change, said):
    """Catches a reason told that the others of the node have too, or one that is shown and not told."""
    parts = healthy(recorded, 8)
    parts[3] = (recorded / "planted", 2)
    found = failed(judged(parts, spoil=samples(lambda row: {**row, **change})))
    (reason,) = found.values()
    assert re.search(said, reason), reason


@pytest.mark.slow
def test_a_lower_power_limit_is_told(judged, recorded):
    """Catches the GPU that somebody gave 600 W while the others have 700."""

    def limit(raw):
        samples(lambda row: row)(raw)
        with edited(raw / "gpus.n1.after.json") as look:
            lines = look["commands"]["gpus"]["out"].splitlines()
            lines[4] = lines[4].replace("700.00 W", "600.00 W")
            look["commands"]["gpus"]["out"] = "\n".join([*lines, ""])

    parts = healthy(recorded, 8)
    parts[3] = (recorded / "planted", 2)
    (reason,) = failed(judged(parts, spoil=limit)).values()
    assert "power: its limit is 600 W, the others' 700 W" in reason


@pytest.mark.slow
@pytest.mark.parametrize("others", [1, 3])
def test_among_few_gpus_work_per_clock_cycle_tells(judged, recorded, others):
    """Catches: a slow GPU among fewer than six that passes, since rates of healthy cards differ as much."""
    verdict = judged([*healthy(recorded, others), (recorded / "planted", 2)])
    ((cell, why),) = ((c, why) for c, why in failed(verdict).items() if "straggler" in c)
    assert cell.endswith(f"gpu={others}") and "less in each clock cycle" in why


@pytest.mark.parametrize(
    ("faster", "told"), [(1.0, None), (1.025, None), (1.034, "hold it to its own history")]
)
def test_a_card_that_may_be_well_is_neither_blamed_nor_passed(judged, recorded, faster, told):
    """Catches: a card 3.3 % slower at its power cap that passes, or silicon 2.5 % slower that is in doubt."""

    def lift(raw):  # all but GPU 2 reach a higher clock, and by as much a higher rate
        file = raw / "gpu_rate.n1.jsonl"
        gpu, lines = 0, []
        for line in map(json.loads, file.read_text().splitlines()):
            gpu = line.get("gpu", gpu)
            if line["type"] == "window" and gpu != 2:
                # A batch more in the same time.
                line["rate"] *= round(line["done"] * faster) / line["done"]
                line["done"] = round(line["done"] * faster)
            lines.append(json.dumps(line))
        file.write_text("\n".join([*lines, ""]))
        file = raw / "gpus.n1.samples.csv"
        header, *rows = [line.split(", ") for line in file.read_text().splitlines()]
        clock = next(n for n, name in enumerate(header) if name.startswith("clocks."))
        for row in rows:
            if row[1] != "2":
                row[clock] = f"{float(row[clock].split()[0]) * faster:.0f}"
        file.write_text("\n".join(", ".join(row) for row in [header, *rows]) + "\n")

    verdict = judged(healthy(recorded, 4), spoil=lift)
    cells = {cell.cell: cell for cell in verdict.cells}
    if told is None:
        assert cells == {}
        return
    cell = cells["node/gpu_rate_bf16/wrong/n1/-/-/check=straggler,gpu=2"]
    assert cell.outcome.value == "INCONCLUSIVE" and told in cell.reason


@pytest.mark.slow
def test_more_than_the_data_sheet_is_impossible(judged, recorded):
    """Catches a rate above the ceiling taken for a fast GPU."""

    def faster(raw):
        file = raw / "gpu_rate.n1.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        out, gpu = [], None
        for line in lines:
            gpu = line.get("gpu", gpu)
            if gpu == 0 and line["type"] == "window":
                line |= {"done": line["done"] * 2, "rate": line["rate"] * 2}
            out.append(json.dumps(line))
        file.write_text("\n".join([*out, ""]))

    found = failed(judged(healthy(recorded, 8), spoil=faster))
    assert any("gpu=0" in cell for cell in found) and not any("gpu=1" in cell for cell in found)
    assert all("989.5" in reason for reason in found.values()), found


@pytest.mark.slow
@cases(
    "spoil, said",
    (
        lambda text: text.replace('"gpu": 2,', '"gpu": 9,'),
        "it is of GPUs 0, 1, 3, 4, 5, 6, 7, 9, 8 were ordered",
    ),
    (lambda text: text[: text.rfind('{"type": "window"')], "output ends before the end of GPU 7"),
    (lambda text: re.sub(r'"matrix": 8192', '"matrix": 4096', text), "but its work and time give"),
)
def test_less_than_ordered_does_not_count(judged, recorded, spoil, said):
    """Catches a GPU left out, an output cut off, or smaller matrices, judged as what was ordered."""

    def change(raw):
        file = raw / "gpu_rate.n1.jsonl"
        file.write_text(spoil(file.read_text()))

    verdict = judged(healthy(recorded, 8), spoil=change)
    assert verdict.outcome.value == "INCONCLUSIVE"
    assert any(re.search(said, cell.reason) for cell in verdict.cells), verdict.cells[0].reason


@pytest.mark.slow
def test_fewer_windows_than_ordered_do_not_count(judged, recorded):
    """Catches ten seconds judged where thirty were ordered."""
    verdict = judged(healthy(recorded, 8), seconds=30)
    assert verdict.outcome.value == "INCONCLUSIVE"
    assert "10 windows of bf16, 30 were ordered" in verdict.cells[0].reason


@cases(
    "old, new, words",
    (r'"rate": [0-9.]+', '"rate": 1e15', "but its work and time give"),
    (r'"type": "window"', '"type": "windows"', "not a line of a GPU's rate"),
    (r"\A.*\n", "", "do not begin with a header"),
    (r'"ms": [0-9.]+', '"ms": NaN', "not a line of a GPU's rate"),
    (r'(\{"type": "window".*\n)', r"\1\1", "windows of bf16 are out of order or doubled"),
)
def test_damaged_output_is_refused(recorded, old, new, words):
    """Catches a rate that nothing bears out, and output that was cut or mixed."""
    text = (recorded / "healthy/gpu_rate.n1.jsonl").read_text()
    (run,) = parse_gpu_rate(text)
    assert (len(run.of("bf16")), len(run.of("fp8")), len(run.of("copy"))) == (20, 20, 20)
    refused(words, parse_gpu_rate, re.sub(old, new, text, count=1))


def test_the_first_percentile_is_the_slowest_of_few():
    """Catches an interpolation that hides the one second in which a GPU stood still."""
    assert lowest([5.0, 1.0, 4.0]) == 1.0
    assert lowest([float(n) for n in range(200)]) == 2.0


def test_memory_is_told_for_copies_without_another_process():
    """Catches slow memory told as a clock that is too low."""
    mine = Shown(1980, 1980, 610, 700, 53, {})
    assert explain(mine, [mine, mine], "copy", 0.03).startswith("memory: its clock is not lower")


def test_a_site_without_pytorch_is_refused():
    """Catches a plan that no node can run."""
    _, _, site = planned()
    bare = site.model_copy(update={"software": {}})
    refused("gpu_rate needs PyTorch", plan_site, bare, [PROFILES / "h200_gpu_rate.yml"])


def test_it_has_its_turn_at_night():
    """Catches a benchmark that the rotation leaves out silently."""
    assert alone_slots(planned()[2])["gpu_rate"] == ("n1",)


@pytest.mark.parametrize("late", [0.0, 0.7])
def test_no_gpu_begins_before_the_slowest_process_is_ready(tmp_path, late):
    """Catches GPUs that work alone, with more power each, while another's process still loads PyTorch."""
    code = (
        "import sys, time; time.sleep(float(sys.argv[1])); print('ready', repr(time.time()), flush=True); "
        "print(sys.stdin.readline(), flush=True)"
    )
    outputs = [tmp_path / "a", tmp_path / "b"]
    children = []
    for file, seconds in zip(outputs, (0.0, late), strict=True):
        with file.open("wb") as out:
            words = [sys.executable, "-c", code, str(seconds)]
            children.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out))
    begin = start_together(children, outputs)
    assert [child.wait(10) for child in children] == [0, 0]
    said = [output.read_text().split() for output in outputs]
    assert [float(words[2]) for words in said] == [begin, begin]
    assert begin > max(float(words[1]) for words in said)


def test_a_process_that_ends_at_once_holds_nobody_up(tmp_path):
    """Catches a job that waits for a GPU whose PyTorch does not load, or ends itself on its closed pipe."""
    output = tmp_path / "a"
    with output.open("wb") as out:
        child = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=out)
    asked = time.time()
    start_together([child], [output], patience_s=20)
    assert time.time() - asked < 10
    assert child.wait(10) == 0


def test_a_gpu_is_known_by_its_uuid(judged, staged):
    """Catches: another card's clock and process told of one, where CUDA_VISIBLE_DEVICES has another order."""

    def turned(raw):  # the job's GPU 1 is the driver's 2, on which somebody works, and the other way round
        with edited(raw / "gpus.n1.after.json") as look:
            uuids = re.findall(r"GPU-[0-9a-f-]+", look["commands"]["gpus"]["out"])
            look["commands"]["processes"]["out"] += f"{uuids[2]}, 4711, 638 MiB\n"
        other = {1: 2, 2: 1}
        lines = [json.loads(line) for line in (raw / "gpu_rate.n1.jsonl").read_text().splitlines()]
        for line in lines:
            if line["type"] == "header":
                line["uuid"] = uuids[other.get(line["gpu"], line["gpu"])].removeprefix("GPU-")
        (raw / "gpu_rate.n1.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    verdict = judged([(staged[f"{n}"], 0) for n in range(1, 5)], spoil=turned)
    assert verdict.cells and {cell.cell.rpartition("gpu=")[2] for cell in verdict.cells} == {"1"}


SOFTWARE = "580.159.04, 2.11.0+cu130, 8192"


def history(*of, software=SOFTWARE):
    """What GPUs 0, 1, ... reached in accepted runs, by UUID; a GPU without a value has no history."""
    return {
        f"GPU-{gpu + 1:08d}-0000-0000-0000-000000000000": {"software": software, "rates": {"bf16": rates}}
        for gpu, rates in enumerate(of)
        if rates
    }


@pytest.mark.parametrize(
    ("gain", "runs", "outcome", "said"),
    [
        (1.001, 3, "PASS", ""),
        (1.004, 8, "PASS", ""),
        (1.020, 3, "FAIL", r"-(1\.9\d|2\.00)% against its own .*\(median of 3 accepted runs\)"),
        (1.0067, 8, "INCONCLUSIVE", "runs may differ so much"),  # a healthy card did so within three minutes
        (1.008, 1, "INCONCLUSIVE", "runs may differ so much"),
    ],
)
def test_a_card_is_held_to_what_it_reached_itself(judged, recorded, gain, runs, outcome, said):
    """Catches: a card that lost 2 % of its own rate, as cards differ by; one blamed for its run to run."""
    parts = healthy(recorded, 2)
    now = [
        sorted(line["rate"] for line in lines_of(*part[:1], 0, part[1])[1:-1])[WINDOWS // 2] / 1e12
        for part in parts
    ]
    verdict = judged(parts, own=history([now[0]] * runs, [now[1] * gain] * runs))
    cells = {cell.cell: cell for cell in verdict.cells}
    assert verdict.outcome.value == outcome
    if said:
        ((name, cell),) = cells.items()
        assert name.endswith("check=own,gpu=1") and re.search(said, cell.reason), cell.reason


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (history([665.0], [665.0], software="575.1, 2.11.0+cu130, 8192"), "its accepted runs had 575.1"),
        (history([665.0], []), "no accepted run of bf16"),
    ],
)
def test_a_card_without_a_history_of_this_software_is_not_run(judged, recorded, own, said):
    """Catches: a card passed with nothing to hold it to, or blamed for what a new driver does to all."""
    verdict = judged(healthy(recorded, 2), own=own)
    assert verdict.outcome.value == "NOT-RUN" and all(said in cell.reason for cell in verdict.cells)


def test_what_a_run_accepts_is_what_the_next_is_held_to(judged, recorded, tmp_path):
    """Catches: a printed history that no site can use, or one of a card that its run does not accept."""
    assert judged(healthy(recorded, 2)).outcome.value == "PASS"
    found, left = accepted_cards([tmp_path / "r1", tmp_path / "r1"])
    assert [len(card["rates"]["bf16"]) for card in found.values()] == [2, 2] and not left
    assert {card["software"] for card in found.values()} == {SOFTWARE}
    assert judged(healthy(recorded, 2), own=found).outcome.value == "PASS"
    judged([*healthy(recorded, 2), (recorded / "planted", 2)])
    found, left = accepted_cards([tmp_path / "r1"])
    assert list(found) == list(history([1.0], [1.0])) and "GPU 2 of n1 was not accepted" in left[0]
