"""References from the history: what a proposal rests on, and what it must not rest on."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from shakedown.commands import cli
from shakedown.daytwo.history.fleet_references import propose
from shakedown.daytwo.history.ingest import ingest
from shakedown.records.reading import BadInput
from shakedown.references.files import load_catalogue, load_profile
from tests.unit.daytwo.fleet import START, Night, names

NODES = names(6)
NOW = START.replace(year=2027)
PROFILE = (Path(__file__).parent / "profiles/baseline.yml").read_text()


@pytest.fixture
def fleet_profile(tmp_path):
    """The profile that the runs were judged by."""
    path = tmp_path / "fleet.yml"
    path.write_text(PROFILE)
    return path


def fill(root: Path, nights: int, **options) -> Path:
    """Take in a number of nights; `n2` is slow for the last ten if asked for."""
    for night in range(nights):
        more = {k: v(night) if callable(v) and k != "factor" else v for k, v in options.items()}
        run = Night(f"r{night:03}", nodes=NODES, night=night, metrics=("write", "lat"), **more)
        ingest(root / "history", run.write(root / run.run), now=NOW)
    return root / "history"


def entries(text: str) -> dict[str, dict]:
    """Return the proposed references by test."""
    return {e["test"]: e for e in yaml.safe_load(text)["references"]}


def test_a_proposal_says_what_it_rests_on_and_can_be_used(tmp_path, fleet_profile):
    """Catches: a figure without n, spread and inventory; a file that the planner refuses; a lost ceiling."""
    store = fill(tmp_path, 15)
    text, left = propose(store, load_catalogue([fleet_profile]), profile="fleet_baseline")
    write = entries(text)["ib_write_bw"]
    assert write["value"] == pytest.approx(390, rel=0.01)
    assert 0.005 <= write["tolerance"] <= 0.1
    assert write["scope"] == {"nic_speed_gbps": 400, "system": "fleet", "size_bytes": 65536}
    assert "n = 90 values of 6 nodes in 15 nights" in write["source"]
    assert "nic firmware 22.1" in write["source"]
    assert write["ceiling"]["formula"] == "roce_payload"
    assert left == []
    path = tmp_path / "fleet_baseline.yml"
    path.write_text(text)
    assert len(load_profile(path).entries) == 2


def test_a_looser_gate_is_marked(tmp_path, fleet_profile):
    """Catches: a threshold loosened to pass, on the quiet. 2.5 us is what the fleet does, 2.1 was allowed."""
    store = fill(tmp_path, 15)
    text, _ = propose(store, load_catalogue([fleet_profile]), profile="x")
    assert entries(text)["ib_write_lat"]["note"].startswith("LOOSER than lat: gate 2.")
    assert "note" not in entries(text)["ib_write_bw"]


@pytest.mark.slow
def test_a_sick_node_does_not_widen_the_tolerance(tmp_path, fleet_profile):
    """Catches: a baseline learnt from the fault that it should find."""
    healthy, _ = propose(fill(tmp_path / "a", 24), load_catalogue([fleet_profile]), profile="x")
    late = {"n2": 0.9}
    sick = tmp_path / "b"
    for night in range(24):
        run = Night(
            f"r{night:03}",
            nodes=NODES,
            night=night,
            metrics=("write", "lat"),
            factor=lambda m, n, night=night: late.get(n, 1.0) if night >= 16 and m == "write" else 1.0,
        )
        ingest(sick / "history", run.write(sick / run.run), now=NOW)
    found, _ = propose(sick / "history", load_catalogue([fleet_profile]), profile="x")
    assert "of 5 nodes" in entries(found)["ib_write_bw"]["source"]
    assert entries(found)["ib_write_bw"]["tolerance"] <= entries(healthy)["ib_write_bw"]["tolerance"] + 0.01


def test_only_nights_since_the_last_upgrade_count(tmp_path, fleet_profile):
    """Catches: a baseline of two firmwares, which is true of neither."""
    new = dict.fromkeys(NODES, "22.2")
    store = fill(tmp_path, 30, firmware=lambda night: new if night >= 12 else {})
    text, left = propose(store, load_catalogue([fleet_profile]), profile="x")
    assert "in 18 nights" in entries(text)["ib_write_bw"]["source"]
    assert "nic firmware 22.2" in entries(text)["ib_write_bw"]["source"]
    assert "22.1 -> 22.2" in left[0]


def test_few_nights_propose_nothing(tmp_path, fleet_profile):
    """Catches: a baseline from an afternoon."""
    with pytest.raises(BadInput, match="5 nights of 6 nodes, 14 nights of 2 nodes are needed"):
        propose(fill(tmp_path, 5), load_catalogue([fleet_profile]), profile="x")


def test_the_command_prints_a_diff_that_patch_takes_and_writes_nothing(
    tmp_path, fleet_profile, monkeypatch, capsys
):
    """Catches: references that change by themselves."""
    store, into = fill(tmp_path, 15), tmp_path / "fleet_baseline.yml"
    where = ("--store", str(store), "--into", str(into))
    monkeypatch.setattr(sys, "argv", ["shakedown", "references", "baseline", str(fleet_profile), *where])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert out.startswith("--- /dev/null\n+++ ")
    assert not into.exists()
    subprocess.run(["patch", "-p0", str(into)], input=out, text=True, check=True, capture_output=True)
    assert len(load_profile(into).entries) == 2
