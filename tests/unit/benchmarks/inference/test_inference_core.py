"""What a peak says: data rate, bottleneck, the paper's table; and the plan that asks for it."""

import json
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from shakedown.benchmarks.base.contract import Output
from shakedown.benchmarks.inference.metrics import Inference, _weights_as_planned, inference
from shakedown.benchmarks.inference.peak import bottleneck, data_rate_gb_per_s, difference, extrapolated
from shakedown.daytwo.interconnect_table import table
from shakedown.records.errors import BadInput
from shakedown.records.results import OutputRecord
from shakedown.run.nic_counters import JobFolder

# PRIMERGY CDI paper, Gen5 H100 NVL, GB/s by GPUs; 5 and 6 without switches were extrapolated by the authors.
PAPER = {
    "none": {3: 28.82, 4: 38.49},
    "path3": {3: 28.43, 4: 38.28, 5: 47.22, 6: 53.75},
    "path4": {3: 28.46, 4: 38.14, 5: 46.50, 6: 53.01},
}


def test_data_rate_is_the_papers():
    """Catches another image size: 158,125 queries/s are 23.80 GB/s in the paper."""
    assert data_rate_gb_per_s(158_125) == pytest.approx(23.80, abs=0.005)


def test_table_is_the_papers():
    """Catches a wrong baseline, a wrong extrapolation (57.74 and 48.12 in the paper) or one not marked."""
    rows = {row.path: row.cells for row in table(PAPER, "none")}
    assert rows["none"][6].extrapolated and rows["none"][6].gb_per_s == pytest.approx(57.74, rel=2e-3)
    assert rows["none"][5].extrapolated and rows["none"][5].gb_per_s == pytest.approx(48.12, rel=2e-3)
    assert not rows["path4"][6].extrapolated
    assert rows["path4"][6].ratio == pytest.approx(53.01 / 57.74, rel=2e-3)
    assert rows["path4"][6].reading == "-8.1% (extrapolated)"


def test_differences_within_the_noise_are_none():
    """Catches 1.5 % at 3 GPUs called a cost of the switches when the baseline itself varies by 3 %."""
    rows = {row.path: row.cells for row in table(PAPER, "none")}
    assert rows["path3"][3].reading == rows["path4"][4].reading == "no difference"
    assert difference(0.969) == "-3.1%" and difference(1.029) == "no difference"


def test_baseline_must_be_there():
    """Catches a table normalised to nothing."""
    with pytest.raises(BadInput, match="no rates of the baseline"):
        table(PAPER, "path9")
    assert extrapolated({}, 4) is None


@pytest.mark.parametrize(
    ("h2d", "network", "limit"),
    [
        (55.0, 42_000.0, "gpu"),  # 5.5 of 55 GB/s, 36.5k of 42k
        (6.0, 80_000.0, "interconnect"),
        (6.0, 40_000.0, "both"),
        (55.0, 90_000.0, "neither"),
        (None, None, "unknown"),
    ],
)
def test_bottleneck(h2d, network, limit):
    """Catches the GPU blamed for a slow link, and the link for a slow GPU."""
    found = bottleneck(5.5, h2d=h2d, ceiling=58.45, network_qps=network, qps=36_500)
    assert found.limit == limit


def test_a_probe_too_short_to_tell_is_refused():
    """Catches a bisection to 0.5 % with probes in which 0.5 % too much does not fill the latency bound."""
    with pytest.raises(ValidationError, match="cannot tell"):
        Inference(gpus=(1,), probe_s=1)
    Inference(gpus=(1,), probe_s=3)


def test_accuracy_needs_weights_images_and_labels():
    """Catches an accuracy gate that random weights would be held to, or that nobody would measure."""
    for missing in ({"labels": "/l.npy"}, {"labels": "/l.npy", "images": "/i.npy"}):
        with pytest.raises(ValidationError, match="together"):
            Inference(gpus=(1,), **missing)
    files = {"weights": "/w.pt", "labels": "/l.npy", "images": "/i.npy"}
    with pytest.raises(ValidationError, match=r"sha256sum /w\.pt prints"):
        Inference(gpus=(1,), **files)
    with pytest.raises(ValidationError, match="weights_sha256"):
        Inference(gpus=(1,), **files, weights_sha256="AB" * 32)


@pytest.mark.parametrize(
    ("workers", "says"),
    [
        ([{"worker": 0, "weights_sha256": "cd" * 32, "accuracy": 76.4}], "planned abab"),
        ([{"worker": 0, "accuracy": 76.4}], "sha256 None"),
    ],
)
def test_an_accuracy_of_other_weights_is_refused(workers, says):
    """Catches: 80.9 % of torchvision's second weights, which pass for the planned weights' 76.46 %."""
    order = Inference(gpus=(1,), weights="/w.pt", weights_sha256="ab" * 32, images="/i.npy", labels="/l.npy")
    output = SimpleNamespace(order=order, file="inference.json")
    _weights_as_planned({"workers": [{"worker": 0, "weights_sha256": "ab" * 32}]}, output)
    with pytest.raises(BadInput, match=says):
        _weights_as_planned({"workers": workers}, output)


@pytest.mark.parametrize(
    ("workers", "accuracy", "silent"),
    [
        ([(0, 76.4), (1, 76.2)], 76.2, ""),
        ([(0, 76.4)], None, "no accuracy of worker 1, of 2"),
        ([(0, 76.4), (1, None)], None, "no accuracy of worker 1, of 2"),
        ([(0, 76.4), (1, float("nan"))], None, "no accuracy of worker 1, of 2"),
        ([(0, 76.4), (1, True)], None, "no accuracy of worker 1, of 2"),
        ([(0, 76.4), (0, 76.4)], None, "no accuracy of worker 1, of 2"),
        ([(0, 76.4), (1, 12.0), (1, 76.4)], 12.0, ""),
        ([], None, "no accuracy of worker 0, 1, of 2"),
    ],
)
def test_every_worker_tells_its_accuracy(workers, accuracy, silent, recorded_run):
    """Catches: a GPU whose accuracy nobody measured, passed by that of the others."""
    file = recorded_run("h200x4_interconnect") / "raw/application.inference.gpu1.a1/search.g2.json"
    document = json.loads(file.read_text())
    files = {"weights": "/w.pt", "weights_sha256": "ab" * 32, "images": "/i.npy", "labels": "/l.npy"}
    jobs = json.loads((file.parents[2] / "jobs.json").read_text())["jobs"]
    settings = next(job["settings"] for job in jobs if job["kind"] == "inference")
    known = Inference.model_fields  # the run is of a release that gave the interpreter here
    document["workers"] = [
        {"worker": n, "weights_sha256": "ab" * 32} | ({} if found is None else {"accuracy": found})
        for n, found in workers
    ]
    line = {"schema": 1, "tool": "inference", "test": "resnet50_server", "file": file.name}
    line |= {"nodes": ["gpu1"], "exit_code": 0, "started": "2026-11-20T00:00:00Z", "duration_s": 1.0}
    record = OutputRecord.model_validate({**line, "params": {"gpus": 2}})
    order = Inference.model_validate({k: v for k, v in settings.items() if k in known} | files)
    output = Output(json.dumps(document), record, order, JobFolder(file.parent))
    *_, last = inference(output)
    assert (last[0], last[1], last[5]) == ("accuracy", accuracy, silent)
