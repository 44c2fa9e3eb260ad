"""A night end to end with a Slurm and a playbook that are made up: what is measured, told and delivered."""

import fcntl
import http.server
import json
import socketserver
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families

import shakedown.daytwo.nightly.night as under_test
from shakedown.benchmarks.planning import site_of
from shakedown.collect.counters import counted, read_nodes
from shakedown.commands import cli
from shakedown.daytwo.nightly.night import Nightly
from shakedown.daytwo.nightly.plan import (
    Share,
    Tonight,
    alone_slots,
    choose,
    covered_slots,
    never_at_night,
    nightly_plan,
    nights_to_cover,
    slot_costs,
)
from shakedown.daytwo.nightly.playbook import Delivery, Draining, Mail, NightlyConfig, Webhook
from shakedown.daytwo.nightly.report import (
    SIGNATURE,
    STAMP,
    Night,
    deliver,
    metrics,
    signature,
    subject,
    text,
)
from shakedown.plan.jobs import Jobs, counter_tests
from shakedown.records.plan import Plan
from shakedown.records.reading import BadInput, read_record
from shakedown.records.results import JobRecord, RunProblem
from shakedown.references.files import load_catalogue
from shakedown.slurm.client import Slurm
from tests.kit import records
from tests.kit.cases import cases
from tests.kit.files import edited, script
from tests.kit.site import inventory, lab_fabric
from tests.unit.daytwo.fake_slurm import FakeSlurm

pytestmark = pytest.mark.slow  # whole nights

FIRST = datetime(2026, 11, 2, 1, 0, tzinfo=UTC)
NODES = tuple(f"n{i}" for i in range(1, 7))
FAKE = Path(__file__).with_name("fake_playbook.py")
CREATED = "2026-11-20T02:00:00Z"


def site_document() -> dict:
    """Six nodes on two rails, two tests."""
    bandwidth = {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 9}
    latency = {"test": "ib_write_lat", "size_bytes": 64, "iterations": 9}
    return inventory(NODES, {"perftest": [bandwidth, latency]}, lab_fabric(link_speed_gbps=100), stride=8)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A fake Slurm whose six nodes are idle, and the fake playbook in place of Ansible's."""
    made = FakeSlurm(tmp_path, NODES)
    playbook = tmp_path / "ansible-playbook"
    script(playbook, f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    monkeypatch.setenv("PATH", f"{made.bin}:/usr/bin:/bin")
    monkeypatch.setattr("shakedown.daytwo.nightly.playbook.PLAYBOOK", playbook)
    monkeypatch.setattr(under_test, "read_site", lambda inventory: site_of(site_document(), inventory))
    return made


@pytest.fixture
def config(tmp_path):
    """The nightly's configuration, with what a test changes."""
    base = {"checkout": str(Path(__file__).resolve().parents[3]), "inventory": "inventories/x"}
    base |= {"budget_s": 200, "state": str(tmp_path / "state"), "access": ("--nice=10000", "--qos=scavenger")}
    return lambda **more: NightlyConfig.model_validate(base | more)


def test_a_quiet_night_passes_and_the_rotation_goes_on(slurm, config):
    """Catches: the same slots every night; three nights must have measured everything of every node."""
    nightly = Nightly(config())
    costs = slot_costs(site_of(site_document(), Path("x")), 4, 120)
    rounds = nights_to_cover(costs, budget_s=200)
    assert rounds == 2
    for number in range(rounds):
        night = nightly.run(FIRST + timedelta(days=number))
        assert (night.outcome, night.problems) == ("PASS", ()), (night.reason, night.failed)
        assert (night.nodes, night.not_idle, night.nights_to_cover) == (NODES, {}, rounds)
    covered = json.loads((nightly.state / "rotation.json").read_text())["covered"]
    assert {n: set(covered[n]) for n in NODES} == {n: set(costs) for n in NODES}


def test_a_night_of_one_rail_can_pass(slurm, config):
    """Catches: the rails whose turn it is not counted as holes of the plan, so that no night ever passes."""
    night = Nightly(config(budget_s=100)).run(FIRST)
    assert (night.outcome, night.shares) == ("PASS", 2), (night.reason, night.failed)


def test_a_retest_is_not_taken_for_one_that_was_cut_off(slurm, config):
    """Catches: the retest's own reservation reported as left behind, so that no retest ends well."""
    Slurm().reserve("shakedown_n3", ("n3", "n1", "n2"), "root")
    retest = Nightly(config(access=("--reservation=shakedown_n3",))).run(FIRST)
    assert (retest.outcome, retest.problems) == ("PASS", ())
    other = Nightly(config()).run(FIRST + timedelta(days=1))
    assert other.problems == ("shakedown_n3: a retest was cut off: shakedown drain end-retest NODE --act",)


def test_jobs_get_low_priority_and_a_deadline(slurm, config):
    """Catches: a nightly job that waits for a busy node for ever, or is preferred to a user's."""
    nightly = Nightly(config(wait_s=600))
    night = nightly.run(FIRST)
    folder = nightly.state / "runs" / night.run
    extra = json.loads((folder / "raw" / "nightly.json").read_text())
    longest = max(j.time_limit_s for j in read_record(folder / "jobs.json", Jobs).jobs)
    assert extra["stage_access"] == [
        "--nice=10000",
        "--qos=scavenger",
        f"--deadline=now+{600 + longest}seconds",
    ]


def test_only_idle_nodes_are_used_and_the_others_are_named(slurm, config):
    """Catches: a user's node measured, a drained node used, and a node forgotten without a word."""
    slurm.set("n1", state="ALLOCATED")
    slurm.set("n2", state="IDLE+DRAIN", reason="bad DIMM", by="alice")
    slurm.set("n3", state="MIXED")
    nightly = Nightly(config(exclude=("n4",)))
    night = nightly.run(FIRST)
    assert night.nodes == ("n5", "n6")
    assert night.not_idle == {
        "n1": "ALLOCATED",
        "n2": "DRAIN+IDLE: bad DIMM",
        "n3": "MIXED",
        "n4": "excluded",
    }
    plan = read_record(nightly.state / "runs" / night.run / "plan.json", Plan)
    assert {n for item in plan.items for nodes in item.nodes for n in nodes if n != "leaf0"} == {"n5", "n6"}
    assert slurm.updates() == []


def test_a_slow_node_is_found_and_drained_when_that_is_wanted(slurm, config, monkeypatch):
    """Catches: the whole way from measurement to drain; its partners stay in service."""
    monkeypatch.setenv("FAKE_NIGHT", '{"slow": ["n3"]}')
    night = Nightly(config()).run(FIRST)
    assert (night.outcome, [(a.node, a.action) for a in night.actions if a.action != "none"]) == (
        "FAIL",
        [("n3", "drain")],
    )
    assert slurm.updates() == []  # a proposal
    assert all(line.count(" -> ") == 1 for line in night.failed), night.failed[0]  # each place is said once
    wanted = Draining(act=True, max_fraction=0.5)
    night = Nightly(config(drain=wanted.model_dump())).run(FIRST + timedelta(days=1))
    assert list(slurm.drained()) == ["n3"]
    assert "drained: n3" in subject(night)
    night = Nightly(config(drain=wanted.model_dump())).run(FIRST + timedelta(days=2))
    assert "n3" not in night.nodes


def test_a_preempted_job_is_inconclusive_and_stays_first_in_line(slurm, config, monkeypatch):
    """Catches: a preempted job counted as covered, or blamed on its nodes."""
    monkeypatch.setenv("FAKE_NIGHT", '{"killed": ["fabric.ib_write_bw"]}')
    nightly = Nightly(config(drain={"act": True, "max_fraction": 1.0}))
    night = nightly.run(FIRST)
    assert (night.outcome, night.actions, slurm.updates()) == ("INCONCLUSIVE", (), [])
    covered = json.loads((nightly.state / "rotation.json").read_text())["covered"]
    assert not any(slot.startswith("ib_write_bw") for of in covered.values() for slot in of)
    monkeypatch.setenv("FAKE_NIGHT", "{}")
    again = nightly.run(FIRST + timedelta(days=1))
    plan = read_record(nightly.state / "runs" / again.run / "plan.json", Plan)
    assert "ib_write_bw" in {item.test for item in plan.items}


def test_a_night_that_takes_too_long_is_ended(slurm, config, monkeypatch):
    """Catches: a hung night that holds the lock until somebody notices."""
    monkeypatch.setenv("FAKE_NIGHT", '{"hang": 60}')
    night = Nightly(config(limit_s=2)).run(FIRST)
    assert night.outcome in ("NOT-RUN", "INCONCLUSIVE")
    assert any("took longer than 2 s" in p for p in night.problems)


def test_a_night_that_was_refused_says_why(slurm, config, monkeypatch):
    """Catches: a night that measured nothing because another run holds the cluster, and says only NOT-RUN."""
    monkeypatch.setenv("FAKE_NIGHT", '{"refused": "run other of alice is under way"}')
    night = Nightly(config()).run(FIRST)
    assert night.outcome in ("NOT-RUN", "INCONCLUSIVE")
    assert "nothing was measured: run other of alice is under way" in night.problems


def test_two_nights_do_not_overlap(slurm, config):
    """Catches: a second night that starts while the first still runs."""
    nightly = Nightly(config())
    nightly.state.mkdir()
    with (nightly.state / "nightly.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BadInput, match="another night is still running"):
            nightly.run(FIRST)


def test_a_broken_rotation_is_said_and_measures_all_again(slurm, config):
    """Catches: a cut-off state file that stops the nightly for good, or that passes unnoticed."""
    nightly = Nightly(config())
    nightly.run(FIRST)
    (nightly.state / "rotation.json").write_text('{"n1": {"ib_wri')
    night = nightly.run(FIRST + timedelta(days=1))
    assert any("rotation.json cannot be read" in p for p in night.problems)
    assert len(night.nodes) == 6


@pytest.mark.parametrize("at", [(FIRST + timedelta(days=3650)).timestamp(), float("nan")])
def test_a_clock_that_was_wrong_keeps_no_slot_from_its_turn(slurm, config, at):
    """Catches: slots noted for a year to come, or for no time, that no night measures and none misses."""
    nightly = Nightly(config())
    nightly.run(FIRST)
    path = nightly.state / "rotation.json"
    with edited(path) as rotation:
        rotation["covered"]["n1"] = dict.fromkeys(slot_costs(site_of(site_document(), Path("x")), 4, 120), at)
    night = nightly.run(FIRST + timedelta(days=1))
    assert any("rotation.json" in p and "never covered" in p for p in night.problems)
    now = (FIRST + timedelta(days=2)).timestamp()
    covered = json.loads(path.read_text())["covered"]
    assert "n1" in night.nodes and all(time < now for time in covered["n1"].values())


def test_a_night_says_first_how_much_of_the_site_it_has(slurm, config):
    """Catches: a PASS of two nodes that reads, in verdict and report, as one of all six."""
    for name in ("n1", "n2", "n3", "n4"):
        slurm.set(name, state="IDLE+DRAIN", reason="bad DIMM", by="alice")
    night = Nightly(config(budget_s=100)).run(FIRST)
    assert night.outcome == "PASS"
    assert night.reason.startswith(
        "2 of 6 nodes, 1 of 2 rails, one night's turn: not an acceptance of the site; all "
    )
    for name in ("n1", "n2", "n3", "n4"):
        slurm.set(name, state="IDLE")
    whole = Nightly(config(budget_s=2000)).run(FIRST + timedelta(days=1))
    assert whole.reason.startswith("one night's turn: not an acceptance of the site; all ")
    part = Nightly(config()).run(FIRST + timedelta(days=2), wanted=Tonight(nodes=("n1", "n2")))
    assert part.reason.startswith("2 of 6 nodes, ")


def test_what_is_never_idle_becomes_overdue(slurm, config):
    """Catches: a node that is always busy and that nobody misses."""
    slurm.set("n1", state="ALLOCATED")
    nightly = Nightly(config())
    for day in (0, 2, 4, 6):
        night = nightly.run(FIRST + timedelta(days=day))
    assert night.overdue
    assert all(line.startswith("n1 ") for line in night.overdue)


def test_one_idle_node_is_no_pass(slurm, config):
    """Catches: a night that measured nothing and reads as good."""
    for name in NODES[1:]:
        slurm.set(name, state="ALLOCATED")
    night = Nightly(config()).run(FIRST)
    assert (night.outcome, night.nodes) == ("NOT-RUN", ())


def test_old_runs_go_and_their_values_stay(slurm, config):
    """Catches: a disk that fills, and a history that goes with the runs."""
    nightly = Nightly(config(keep_runs_days=5))
    first = nightly.run(FIRST)
    nightly.run(FIRST + timedelta(days=10))
    assert not (nightly.state / "runs" / first.run).exists()
    assert (nightly.state / "history" / "ledger" / f"{first.run}.json").exists()


NIGHT = Night(
    system='la"b',
    run="night-1",
    started=CREATED,
    ended="2026-11-20T02:30:00Z",
    outcome="FAIL",
    reason="1 of 10 cells failed",
    measured=10,
    planned=10,
    nodes=("n1", "n2"),
    not_idle={"n3": "ALLOCATED"},
    shares=1,
    nights_to_cover=3,
    overdue=(),
    alarms=(),
    actions=(),
    failed=("n1 \x1b[31m too slow",),
    acted=False,
    problems=(),
)


def test_what_no_night_measures_is_said():
    """Catches: "every test has its turn" of a site whose trainings and collectives no night starts."""
    never = never_at_night(site_of(site_document(), Path("x")))
    assert [one.partition(":")[0] for one in never] == ["mpi"]
    said = text(NIGHT.model_copy(update={"never": never}))
    assert "in acceptance alone: mpi: one job over all nodes" in said


def test_what_decides_nothing_stands_apart():
    """Catches: a PASS that seems to list failures, and a failure lost among what decides nothing."""
    shown = [f"n1 crosscheck {k} (not required)" for k in range(30)]
    said = text(NIGHT.model_copy(update={"failed": (*shown, "n2 ib_write_bw: too slow")}))
    assert "did not pass:\n  n2 ib_write_bw: too slow\n" in said
    assert "decides nothing:\n  n1 crosscheck 0 (not required)\n" in said
    assert "did not pass" not in text(NIGHT.model_copy(update={"failed": tuple(shown)}))


def test_metrics_are_what_prometheus_reads():
    """Catches: a file that the collector refuses, which looks like a quiet night."""
    found = {
        (s.name, s.labels.get("outcome")): s.value
        for family in text_string_to_metric_families(metrics(NIGHT))
        for s in family.samples
    }
    assert found["shakedown_nightly_outcome", "FAIL"] == 1
    assert found["shakedown_nightly_outcome", "PASS"] == 0
    assert found["shakedown_nightly_cells_measured", None] == 10
    assert "\x1b" not in text(NIGHT)


def test_the_dashboard_asks_for_metrics_that_exist():
    """Catches: a panel that is empty for ever because a metric was renamed."""
    import re

    shown = json.loads((Path("roles/nightly/files/grafana-dashboard.json")).read_text())
    asked = set(re.findall(r"shakedown_\w+", json.dumps([p["targets"] for p in shown["panels"]])))
    written = set(re.findall(r"^(shakedown_\w+)", metrics(NIGHT), re.MULTILINE))
    # Of a night with alarms.
    written |= set(re.findall(r'"(shakedown_\w+)"', Path("shakedown/daytwo/nightly/report.py").read_text()))
    assert asked
    assert asked <= written
    assert len({p["id"] for p in shown["panels"]}) == len(shown["panels"])


def test_grafana_knows_every_word_of_the_dashboard():
    """Catches: a key or structure that Grafana does not have: dropped without a word when it is loaded."""
    shown = json.loads((Path("roles/nightly/files/grafana-dashboard.json")).read_text())
    plugins.register_default_plugins()
    known = json.loads(JSONEncoder().encode(Dashboard.from_json(shown)))
    # The text that the variable's editor shows; newer than this model.
    del shown["templating"]["list"][1]["definition"]
    assert lost(shown, known) == []


def lost(written: object, known: object, place: str = "") -> list[str]:
    """Return what is not in the model, or not as it was written."""
    if isinstance(written, dict) and isinstance(known, dict):
        return [x for key, value in written.items() for x in lost(value, known.get(key), f"{place}/{key}")]
    if isinstance(written, list) and isinstance(known, list) and len(written) == len(known):
        return [
            x for n, pair in enumerate(zip(written, known, strict=True)) for x in lost(*pair, f"{place}/{n}")
        ]
    return [] if written == known else [place]


@pytest.fixture
def receiver():
    """A web server that keeps what it is sent."""
    got: list[tuple[dict, bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if self.path == "/refuses" else 204)
            self.end_headers()

        def log_message(self, *args):
            return

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", got
        server.shutdown()


def test_the_webhook_is_signed(receiver, tmp_path):
    """Catches: a report that anybody could have sent."""
    url, got = receiver
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef\n")
    key.chmod(0o600)
    assert deliver(NIGHT, Delivery(webhook=Webhook(url=f"{url}/x", key_file=str(key)))) == []
    headers, body = got[0]
    assert json.loads(body)["outcome"] == "FAIL"
    assert headers[SIGNATURE] == signature(b"0123456789abcdef0123456789abcdef", headers[STAMP], body)
    assert headers[SIGNATURE] != signature(b"0123456789abcdef0123456789abcdef", "0", body)


def test_the_mail_says_in_its_subject_what_needs_a_look():
    """Catches: a mail that is never sent, or that hides the outcome in an attachment."""
    got: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            self.wfile.write(b"220 here\r\n")
            for line in self.rfile:
                word = line[:4].upper()
                if word == b"DATA":
                    self.wfile.write(b"354 go\r\n")
                    got.append("".join(iter(lambda: self.rfile.readline().decode(), ".\r\n")))
                self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 well\r\n")

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        to = {"to": ["ops@example.org"], "sender": "x@example.org", "only_if_needed": True}
        mail = Mail.model_validate({**to, "server": "127.0.0.1", "port": server.server_address[1]})
        assert deliver(NIGHT, Delivery(mail=mail)) == []
        calm = NIGHT.model_copy(update={"outcome": "PASS"})
        assert deliver(calm, Delivery(mail=mail)) == []
        server.shutdown()
    assert len(got) == 1
    assert 'Subject: FAIL la"b night-1' in got[0]
    assert "10 of 10 cells measured on 2 nodes" in got[0]


def test_one_way_that_fails_does_not_keep_the_others(receiver, tmp_path):
    """Catches: a mail server that is down and takes the file with it; a key that all can read."""
    url, _ = receiver
    key = tmp_path / "key"
    key.write_text("0123456789abcdef")
    key.chmod(0o644)
    wanted = Delivery.model_validate(
        {
            "mail": {"to": ["ops@example.org"], "sender": "x@example.org", "server": "127.0.0.1", "port": 1},
            "webhook": {"url": f"{url}/refuses", "key_file": str(key)},
            "file": str(tmp_path / "out" / "night.txt"),
            "textfile": str(tmp_path / "night.prom"),
        }
    )
    failed = deliver(NIGHT, wanted)
    assert [line.split(":")[0] for line in failed] == ["mail", "webhook"]
    assert "others can read the key" in failed[1]
    assert (tmp_path / "out" / "night.txt").read_text().startswith('FAIL la"b night-1')
    assert json.loads((tmp_path / "out" / "night.json").read_text())["run"] == "night-1"
    assert "shakedown_nightly_outcome" in (tmp_path / "night.prom").read_text()
    key.chmod(0o600)
    assert "answered 500" in deliver(NIGHT, Delivery(webhook=wanted.webhook))[0]


def test_command_exit_status_is_the_nights(slurm, config, tmp_path, monkeypatch, capsys):
    """Catches: a timer's service that looks well after a night that failed."""
    path = tmp_path / "nightly.json"
    path.write_text(config().model_dump_json(by_alias=True))
    for wrong, status in (("{}", 0), ('{"slow": ["n3"]}', 1), ('{"killed": ["fabric"]}', 3)):
        monkeypatch.setenv("FAKE_NIGHT", wrong)
        monkeypatch.setattr(sys, "argv", ["shakedown", "nightly", "run", "--config", str(path)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == status, capsys.readouterr().out
        # Runs are named by the second.
        import time

        time.sleep(1.1)


def test_nodes_with_gpus_have_their_own_tests_in_turn(tmp_path):
    """Catches: GPU tests left out of the rotation, planned where there is no GPU, or twice in one plan."""
    document = site_document()
    for name in NODES:
        document["_meta"]["hostvars"][name]["acceptance"]["gpu_node"] = {}
        document["_meta"]["hostvars"][name]["gpus"] = [{"index": g} for g in range(2)] if name != "n6" else []
    site = site_of(document, Path("x"))
    costs, alone = slot_costs(site, 4, 100), alone_slots(site)
    assert alone == {"gpu_node": NODES[:5]}
    shares = choose(NODES, costs, {}, budget_s=600, group=4, seed=1, alone=alone)
    plan, jobs, slots = nightly_plan(site, load_catalogue(["lab"]), shares, run="r", created=CREATED)
    tested = {n for item in plan.items if item.test == "gpu_state" for nodes in item.nodes for n in nodes}
    assert tested == set(NODES[:5])
    names = [job.name for job in jobs.jobs]
    assert len(set(names)) == len(names)
    assert {slot for cell, slot in slots.items() if "/gpu_state/" in cell} == {"gpu_node"}


def test_each_jobs_counters_have_a_place_of_their_own(tmp_path):
    """Catches: two jobs of one test on one NIC, whose two readings stand in one cell."""
    site = site_of(site_document(), Path("x"))
    slots = [slot for slot in slot_costs(site, 4, 0) if slot.startswith("ib_write_bw")]
    shares = [Share(slot, nodes) for slot in slots for nodes in (NODES[:3], NODES[3:])]
    read = []
    assert len(shares) == 4  # two rails, two groups of nodes
    plan, jobs, _ = nightly_plan(site, load_catalogue(["lab"]), shares, run="r", created=CREATED)
    for spec in jobs.jobs:
        if spec.kind != "mesh":
            continue
        folder = tmp_path / spec.name
        folder.mkdir()
        record = JobRecord(
            run="r", stage=spec.stage, test=spec.name, state="COMPLETED", job="1", attempt=1, problem=None
        )
        for node in spec.nodes:
            devices = [
                {"device": nic.rdma_device, "counters": {"rdma.rcvd_pkts": 1}} for nic in jobs.nics[node]
            ]
            for when in ("before", "after"):
                (folder / f"counters.{node}.{when}.json").write_text(json.dumps({"devices": devices}))
        test, readings = counter_tests(jobs.jobs)[spec.name], read_nodes(folder, record, spec.nodes)[0]
        lines = counted(plan, jobs, folder, record, spec, test, readings)
        read += [(r.test, r.device, r.port) for r in lines]
    assert len(read) == len(set(read)), sorted(read)
    planned = [
        (item.test, node, item.params["port"])
        for item in plan.items
        if item.metric == "counter.rdma.rcvd_pkts"
        for (node,) in item.nodes
    ]
    # Each cell of a pair is asked of one job, so that one that was cancelled spoils no other's.
    for item in plan.items:
        if item.test == "ib_write_bw":
            for _, nodes, rail, way in item.cells():
                (job,) = (j for j in jobs.jobs if j.measures(item.test, nodes, rail, way, item.params))
                assert f".{rail}." in job.name
    # A job's NICs of other rails are read, and judged nowhere.
    assert len(planned) == 2 * len(NODES)
    assert set(planned) <= set(read)


@cases(
    "state, problem, value, disturbed, covered",
    ("COMPLETED", None, 1.0, None, True),
    ("COMPLETED", "parse", None, None, True),
    ("COMPLETED", "busy", None, None, False),
    ("COMPLETED", None, 1.0, "another process was on GPU 0 of n1 at the end", False),
    ("PREEMPTED", None, 1.0, None, False),
    ("NODE_FAIL", "killed", None, None, False),
)
def test_a_slot_had_its_turn_when_its_job_completed(state, problem, value, disturbed, covered):
    """Catches: what somebody else interrupted counted as done; a dead NIC tried again every night."""
    m = records.measurement(
        value=value,
        nodes=("n1", "n2"),
        rail="rail0",
        state=state,
        problem=RunProblem(kind=problem, message="x") if problem else None,
        disturbed=disturbed,
    )
    assert covered_slots({m.cell: "s"}, [m]) == ({("n1", "s"), ("n2", "s")} if covered else set())
    assert covered_slots({}, [m]) == set()
