"""What the mesh says is at fault, in verdict and report; it explains and decides nothing."""

import json
import random
import shutil
import subprocess
import sys
from itertools import combinations

import pytest

from shakedown.commands.localise import document
from shakedown.judge.judged import CausesOfRun, judge_folder
from shakedown.judge.localise.pair_results import PairResults
from shakedown.judge.losses import Losses
from shakedown.records.base import Stage, to_json
from shakedown.report.write import report
from shakedown.run.folder import Run
from tests.kit import records
from tests.kit.cases import cases
from tests.kit.run import python


@pytest.fixture
def slow(decision_runs):
    """A run of which one receiver is slow."""
    return decision_runs / "mesh_slow_receiver/run"


def test_the_report_shows_cause_evidence_and_proposal(tmp_path, slow):
    """Catches a localisation that nobody reads, because it is in no report."""
    run = tmp_path / "run"
    shutil.copytree(slow, run)
    assert "the mesh's results blame n3's NIC on rail1, receiving" in report(run).reason
    for name in ("report.html", "report.md"):
        page = (run / name).read_text()
        for words in ("What the mesh says is at fault", "nic n3 rail1 rx", "drain n3 and look at its nic"):
            assert words in page, (name, words)
        assert "5 partners" in page
    assert json.loads((run / "verdict.json").read_text())["causes"][0]["element"] == "nic n3 rail1 rx"


def test_a_healthy_run_names_nobody(tmp_path, decision_runs):
    """Catches a heading about faults over an empty list."""
    run = tmp_path / "run"
    shutil.copytree(decision_runs / "healthy_pt_r7615_bcm57508/run", run)
    report(run)
    assert "is at fault" not in (run / "report.html").read_text()
    assert judge_folder(run).causes == ()


@pytest.mark.slow
def test_the_command_says_the_same_as_the_verdict(slow):
    """Catches two answers to one question."""
    done = python("-m", "shakedown", "localise", slow, "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)["causes"]
    told = judge_folder(slow).causes
    assert [(c["element"], c["proposal"]) for c in found] == [(c.element, c.proposal) for c in told]
    assert document("r", [], [], PairResults(), [])["causes"] == []


def test_two_nodes_blame_nobody_and_cost_no_numpy(decision_runs):
    """Catches a diagnosis of two nodes, which nobody can make, and every verdict made slow by it."""
    code = (
        "import sys; from pathlib import Path; from shakedown.judge.judged import judge_folder;"
        f"v = judge_folder(Path({str(decision_runs / 'sign_mtu_1024/run')!r}));"
        "print(v.causes, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "() False"


def test_whatever_is_missing_or_doubled_a_verdict_comes_out(tmp_path, slow):
    """Catches a diagnosis that breaks the verdict: meshes with holes, doubled lines, zeros and lost nodes."""
    chooser = random.Random(5)
    lines = (slow / "results.jsonl").read_text().splitlines()
    for number in range(20):
        run = tmp_path / str(number)
        shutil.copytree(slow, run)
        kept = []
        for line in chooser.sample(lines, chooser.randint(1, len(lines))):
            record = json.loads(line)
            change = chooser.random()
            if change < 0.2:
                record["value"] = chooser.choice([None, 0.0, -1.0, 1e-300, 1e300, record["value"] / 7])
            elif change < 0.3:
                who = chooser.choice(record["nodes"])
                message = chooser.choice([f"{who} lost: gone", f"{who} {record['rail']}: no device"])
                kind = chooser.choice(["environment", "setup", "killed"])
                record |= {"value": None, "problem": {"kind": kind, "message": message}}
            elif change < 0.35:
                kept.append(json.dumps(record | {"value": 100.0}))
            kept.append(json.dumps(record))
        (run / "results.jsonl").write_text("".join(f"{line}\n" for line in kept))
        first = to_json(judge_folder(run))
        (run / "results.jsonl").write_text("".join(f"{line}\n" for line in reversed(kept)))
        assert to_json(judge_folder(run)) == first, number


def test_a_run_without_mesh_is_only_passed_on(decision_runs):
    """Catches a watcher that swallows measurements."""
    run = Run(decision_runs / "counters/run")
    causes = CausesOfRun(run.plan)
    assert len(list(causes.measurements(run.measurements()))) == len(list(run.measurements())) > 0
    assert len(list(causes.counters(run.counters()))) == len(list(run.counters())) > 0
    assert causes.causes(run) == ()


FOUR = ("n1", "n2", "n3", "n4")


def reading(kind, node, counter, delta):
    """A counter of a node's NIC, or of the leaf's port of that node."""
    nic = kind == "nic"
    return records.counter(
        test="ib_write_bw" if nic else "switches",
        kind=kind,
        device=node if nic else "leaf0",
        port="mlx5_0" if nic else f"to-{node}",
        rail="rail0",
        peer="leaf0/p" if nic else f"{node}/fab0",
        counter=counter,
        after=delta,
    )


def told(missed, pairs, *others, nodes=FOUR):
    """Say who lost what the nodes missed, with every NIC and port read, and these readings beside."""
    losses = Losses()
    quiet = [
        reading(k, n, c, 0) for n in nodes for k, c in (("nic", "rx_discards"), ("switch_port", "tx_drops"))
    ]
    counted = [reading("nic", node, "out_of_sequence", n) for node, n in missed.items()]
    for one in (*quiet, *counted, *others):
        losses.add(one)
    return losses.told(Stage.FABRIC, "ib_write_bw", "rail0", min(missed), pairs)


ALL = list(combinations(FOUR, 2))


@cases(
    "missed, pairs, begins",
    ({"n1": 9, "n2": 9, "n4": 9}, ALL, "n3 rail0 tx: n1, n2 and n4 missed 27 packets, the leaf dropped none"),
    (
        {"n1": 9},
        ALL,
        "n1 rail0 rx: n1 missed 9 packets, the leaf dropped none: likely n1's NIC, its cable or",
    ),
    ({"n1": 9, "n2": 9}, ALL, "packets were lost on rail0 between n1..n4 (4 nodes), by which is not told"),
    ({"n1": 9}, [("n1", "n2"), ("n1", "n3")], "packets were lost on rail0 between n1, n2 and n3, by which"),
    (
        {"n1": 9, "n2": 9},
        [("n1", "n2")],
        "packets were lost on rail0 between n1 and n2, by which is not told",
    ),
)
def test_a_node_is_named_only_where_it_is_told_from_its_partners(missed, pairs, begins):
    """Catches: a receiver blamed for its sender, and a sender named that may as well be another."""
    assert told(missed, pairs).startswith(begins)


def frames(rail, *of_nodes):
    """Frames that each node's NIC sent, its port received, the port sent and the NIC received."""
    counters = ("netdev.tx_packets", "rx_packets", "tx_packets", "netdev.rx_packets")
    for node, deltas in zip(("n1", "n2"), of_nodes, strict=True):
        for kind, counter, delta in zip(("nic", *2 * ["switch_port"], "nic"), counters, deltas, strict=True):
            one = reading(kind, node, counter, delta)
            yield one.model_copy(update={"rail": rail, "port": f"{rail}-{one.port}"})


# Ports count over the stage, NICs while jobs run: 30 frames of LLDP and ARP each way beside the jobs' own.
TWO = ("n1", "n2")


@cases(
    "of_rail, begins, ends",
    (
        [(500, 530, 530, 500), (600, 530, 530, 500)],
        "n2 rail0 tx: n1 missed 100 packets, the leaf dropped none, of 600 frames that n2's NIC sent, its "
        "port received 530",
        "likely n2's NIC, its cable or the port",
    ),
    (
        [(500, 530, 530, 500), (600, 630, 530, 500)],
        "the leaf lost packets on rail0: n1 missed 100 packets, 100 frames more entered its ports on rail0",
        "no drop counter tells of them",
    ),
    (
        [(500, 530, 630, 600), (600, 630, 530, 500)],
        "packets were lost on rail0 between n1 and n2, by which is not told",
        "the leaf dropped none",
    ),
)
def test_a_loss_that_nobody_counted_is_placed_by_the_balance_of_frames(of_rail, begins, ends):
    """Catches: a good NIC and cable blamed for what the leaf lost before it counted; LLDP taken for loss."""
    healthy = frames("rail1", (500, 530, 630, 600), (600, 630, 530, 500))
    readings = [*frames("rail0", *of_rail), *healthy]
    said = told({"n1": 100}, [TWO], *readings, nodes=TWO)
    assert said.startswith(begins), said
    assert said.endswith(ends), said


def test_frames_that_a_leaf_keeps_to_itself_accuse_it_of_nothing():
    """Catches: a leaf blamed for LLDP, which enters every port and leaves none."""
    kept = [(500, 700, 530, 500), (600, 800, 630, 600)]
    said = told({"n1": 100}, [TWO], *frames("rail0", *kept), *frames("rail1", *kept), nodes=TWO)
    assert said.startswith("packets were lost on rail0 between n1 and n2"), said
    assert told({"n1": 100}, [TWO], *frames("rail0", *kept), nodes=TWO).startswith("packets were lost"), said


def test_a_drop_that_explains_little_accuses_nothing():
    """Catches: one packet dropped by a port told as the cause of a hundred missed ones."""
    few = reading("switch_port", "n1", "rx_errors", 1)
    said = told({"n1": 100}, [("n1", "n2")], few)
    assert said.startswith("packets were lost on rail0 between n1 and n2, by which is not told")
    assert said.endswith("not as many were dropped where it was read")
    most = reading("switch_port", "n1", "rx_errors", 90)
    assert told({"n1": 100}, [("n1", "n2")], few, most).startswith(
        "leaf0 port to-n1 dropped packets on rail0"
    )


def between(counter, delta, device="leaf0", port="up1"):
    """A counter of a port between two switches, or of a switch as a whole."""
    return records.counter(
        test="switches",
        kind="switch_port",
        device=device,
        port=port,
        peer="spine1/swp1",
        counter=counter,
        after=delta,
    )


@cases(
    "reading_of_link, begins",
    (between("tx_drops", 9), "leaf0 port up1, between switches, dropped packets: n1 missed 9 packets"),
    (between("roce_lost_packets", 9, "spine1", "switch"), "spine1 lost packets: n1 missed 9 packets"),
)
def test_what_was_lost_between_switches_accuses_no_host(reading_of_link, begins):
    """Catches a good NIC, cable or host port named for packets that an uplink or a spine dropped."""
    said = told({"n1": 9}, ALL, reading_of_link)
    assert said.startswith(begins), said
    assert "NIC" not in said


def test_symbols_that_fec_mended_are_no_drops():
    """Catches a link's corrected symbols, of which every 400G link has many, told as dropped packets."""
    said = told({"n1": 9}, ALL, between("fec_symbol_errors", 10**6))
    assert said.startswith("n1 rail0 rx: ")


@pytest.mark.parametrize(
    ("dropped", "begins"),
    [(50, "leaf0 port up1 dropped packets: 50 RoCE packets that entered leaf0 never left"), (9, "")],
)
def test_a_switch_that_lost_packets_names_the_port_that_dropped_them(dropped, begins):
    """Catches "lost in the switch" told of a leaf whose own port says that it dropped them."""
    losses = Losses()
    for one in (between("roce_lost_packets", 50, port="switch"), between("tx_drops", dropped)):
        losses.add(one)
    said = losses.of_switch(Stage.FABRIC, "leaf0")
    assert said.startswith(begins) and bool(said) is bool(begins), said
    assert losses.of_switch(Stage.FABRIC, "leaf1") == ""


def dead(*moved):
    """What is told of 20 dropped packets at a port between switches that moved this."""
    losses = Losses()
    for counter, delta in moved:
        losses.add(between(counter, delta))
    return losses.on_dead_link(Stage.FABRIC, "leaf0", "up1", "tx_drops", 20)


def test_a_link_that_is_down_is_told_as_down():
    """Catches: a pulled uplink told as loss, though only the switch itself went on sending there."""
    assert dead(("tx_bytes", 0), ("rx_bytes", 0)) == (
        "the link from leaf0 port up1 to spine1 port swp1 is down: not one byte passed either way in the "
        "fabric stage, and the port counted 20 packets dropped at egress"
    )
    # A link that carries anything is up, and one whose bytes were not read may be.
    assert dead(("tx_bytes", 0), ("rx_bytes", 64)) == dead(("tx_bytes", 0)) == dead() == ""


def sent_and_received(node, sent, received):
    """What a node's NIC counted of Soft-RoCE's packets."""
    return reading("nic", node, "rdma.sent_pkts", sent), reading("nic", node, "rdma.rcvd_pkts", received)


def test_packets_that_all_arrived_were_not_lost_by_anyone():
    """Catches: a good leaf, NIC or cable blamed with loss for packets that only overtook each other."""
    pair = [("n1", "n2")]
    all_here = (*sent_and_received("n1", 500, 565), *sent_and_received("n2", 565, 500))
    inside = reading("switch_port", "n1", "roce_lost_packets", 65)
    for others in (all_here, (*all_here, inside)):
        assert told({"n1": 65}, pair, *others) == (
            "packets overtook each other on rail0 on their way to n1: 65 packets came out of sequence and "
            "none was lost, the NICs received all 1065 that they sent"
        )
    # One packet that is missing is a loss, and so is what a NIC dropped after it had counted it.
    lost = (*sent_and_received("n1", 500, 564), *sent_and_received("n2", 565, 500))
    assert told({"n1": 65}, pair, *lost).startswith("n2 rail0 tx: n1 missed 65 packets")
    in_nic = reading("nic", "n1", "rx_discards", 65)
    assert told({"n1": 65}, pair, *all_here, in_nic).startswith("n1's NIC on rail0 dropped packets")
    # Who was not read may have lost some.
    assert told({"n1": 65}, pair, *all_here[:2]).startswith("n2 rail0 tx: ")
