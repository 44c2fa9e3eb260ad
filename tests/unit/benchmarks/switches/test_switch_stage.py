"""The switches' part of the config stage, from raw read-backs to the verdict; LLDP is a real leaf's."""

import json
import shutil
from pathlib import Path

import pytest

from shakedown.collect.run import collect
from shakedown.judge.judged import judge_folder
from tests.kit.files import edited
from tests.kit.job import output, write_job, write_outputs
from tests.kit.run import write_run
from tests.kit.site import document, hosts, plan_site
from tests.unit.nos.rendering import leaf

READINGS = Path(__file__).parents[2] / "nos" / "readings"
CABLES = [(f"swp{2 * r + n}", f"n{n}", f"fab{r}", f"rail{r}") for r in (0, 1) for n in (1, 2)]
CABLING = [{"port": p, "host": h, "netdev": d, "rail": r} for p, h, d, r in CABLES]


def found() -> dict:
    """What a leaf that is configured as wanted says of its ports."""
    fabric = document()["_meta"]["hostvars"]["n1"]["fabric"]
    fabric["roce"]["cnp"]["scheduler"] = "strict"
    return leaf.wanted({"roce": fabric["roce"], "mtu_bytes": 9000, "ports": [port for port, *_ in CABLES]})


class Folder:
    """A run of the config stage, as it lies on disk before it is collected."""

    def __init__(self, folder: Path, nos: str = "linux") -> None:
        inventory = document()
        for host in hosts(inventory):
            host["acceptance"] = {"config": {"link_speed": False}, "counter_tests": False}
        inventory["switches"] = {"hosts": ["leaf0"]}
        inventory["_meta"]["hostvars"]["leaf0"] = {"roce_switch_nos": nos, "leaf_ports": CABLING}
        plan, jobs = plan_site(inventory)
        self.folder = folder
        self.raw = folder / "raw/switches.config"
        self.raw.mkdir(parents=True)
        write_run(folder, plan, jobs)
        for when in ("before", "after"):
            shutil.copy(READINGS / f"leaf0.{when}.json", self.raw)
        (folder / "raw/config.settings.a1").mkdir()
        for _, host, netdev, _ in CABLES:
            self.host(host, netdev)
        self.settings()

    def settings(self, **changes: object) -> None:
        """Write what was read from the switch."""
        settings = {"schema": 1, "switch": "leaf0", "nos": "linux", "cabling": CABLING, "found": found()}
        settings |= {"differences": [], "not_done": ["PFC"], "wanted": {}, "refusals": []}
        (self.raw / "leaf0.settings.json").write_text(json.dumps(settings | changes))

    def host(self, host: str, netdev: str, **changes: object) -> None:
        """Write what a host said of one NIC."""
        values = {"mtu.host_bytes": 9000, "pfc.priorities": [3]}
        values |= {"dscp.map": "0-25:0 26:3 27-47:0 48:6 49-63:0", **changes}
        entries = [
            {"key": k, "found": v, "wanted": v, "ok": True, "settable": True} for k, v in values.items()
        ]
        report = {"schema": 1, "target": netdev, "driver": "rxe", "error": None, "settings": entries}
        report["not_applicable"] = []
        path = self.folder / f"raw/config.settings.a1/settings.{host}.{netdev}.json"
        path.write_text(json.dumps(report))

    def judged(self) -> tuple[dict[str, str], dict[str, str]]:
        """Collect and judge; return the reasons of failed switch cells, and of those without a decision."""
        collect(self.folder)
        cells = [c for c in judge_folder(self.folder).cells if "switch" in c.cell or "crosscheck" in c.cell]
        failed = {c.cell: c.reason for c in cells if c.outcome == "FAIL"}
        return failed, {c.cell: c.reason for c in cells if c.outcome != "FAIL"}


@pytest.fixture
def run(tmp_path):
    """A run in which everything fits."""
    return Folder(tmp_path / "r1")


def test_ends_that_fit_pass_and_what_a_bridge_cannot_have_is_said(run):
    """Catches good cables blamed, a planned cell that is not measured, and PFC of a bridge passed over."""
    failed, open_ = run.judged()
    assert failed == {}
    assert len(open_) == 4  # PFC, of every cable
    assert all(
        "pfc is not reported by the read-back of linux (not required)" in why for why in open_.values()
    )
    groups = [g for g in judge_folder(run.folder).groups if g.test == "crosscheck" and g.measured == 2]
    whats = ["mtu", "cabling", "dscp.26", "dscp.48"]
    assert sorted(str(g.params["what"]) for g in groups) == sorted(whats * 2)


def test_a_nights_jobs_are_read_and_the_last_attempt_counts(run):
    """Catches cables not run at night, when jobs are named by a node; attempt 2 taken for the last."""
    jobs = run.folder / "raw"
    for attempt, mtu in ((10, 9000), (2, 1500)):
        run.host("n1", "fab0", **{"mtu.host_bytes": mtu})
        shutil.copytree(jobs / "config.settings.a1", jobs / f"config.settings.n1.a{attempt}")
    shutil.rmtree(jobs / "config.settings.a1")
    failed, open_ = run.judged()
    assert failed == {}
    assert len(open_) == 4  # PFC, of every cable


def test_a_leaf_that_is_off_is_named_first(run):
    """Catches: two good nodes that cannot connect as the whole story, where their leaf could not be read."""
    shutil.rmtree(run.raw)
    job = write_job(run.folder / "raw/config.traffic_class.a1", nodes=["n1", "n2"])
    lines = []
    for number, (rail, way) in enumerate((r, w) for r in ("rail0", "rail1") for w in ("forward", "reverse")):
        line = {"rail": rail, "direction": way, "exit_code": 1}
        line |= {"params": {"size_bytes": 65536, "rails_at_once": "all"}}
        line |= {"problem": {"kind": "other", "message": "Couldn't connect to 10.10.0.2:18600"}}
        lines.append(output("traffic_class", f"{number}.txt", "n1", "n2", **line))
    write_outputs(job, lines, "n1")
    failed, open_ = run.judged()
    assert failed == {}
    settings = [why for cell, why in open_.items() if "/switch_settings/" in cell]
    assert len(settings) == 1 + len(CABLES)
    assert all("leaf0 was not read back: could it be reached?" in why for why in settings), settings
    verdict = judge_folder(run.folder)
    assert verdict.outcome == "INCONCLUSIVE"
    assert "; not run: leaf0 was not read back: could it be reached?" in verdict.reason, verdict.reason


def test_a_stage_that_did_not_run_says_nothing_of_its_switches(run):
    """Catches: a leaf that nobody asked told as one that could not be reached."""
    shutil.rmtree(run.raw)
    open_ = run.judged()[1]
    assert all("could it be reached" not in why for why in open_.values()), open_


def test_ecn_off_is_named_with_switch_and_port(run):
    """Catches a switch that lost a setting and forwards all the same."""
    spoiled = found()
    spoiled["swp2"]["queues"]["roce"]["ecn"] = False
    run.settings(found=spoiled, differences=["swp2 queues: roce.ecn false -> true"])
    failed, _ = run.judged()
    cell = "config/switch_settings/wrong/leaf0/rail0/-/port=swp2"
    assert list(failed) == [cell]
    assert "leaf0 swp2: swp2 queues: roce.ecn false -> true" in failed[cell]


def test_a_switch_that_printed_no_configuration_is_not_blamed_and_does_not_pass(run):
    """Catches every setting of a switch told as missing because it refused the command that shows them."""
    why = "running configuration: the switch refused the command"
    run.settings(found=[], unread=[why], differences=["lacks: interface swp1 / mtu 9000"])
    failed, open_ = run.judged()
    assert failed == {}
    settings = [reason for cell, reason in open_.items() if "/switch_settings/" in cell]
    assert len(settings) == len(CABLES) + 1
    assert all(why in reason for reason in settings)
    assert sum("leaf0/swp1 told none" in reason for reason in open_.values()) == 3  # MTU and two DSCPs


def test_a_difference_that_names_no_port_is_the_switchs(run):
    """Catches a wrong map of a whole switch that is nobody's cell, or every port's."""
    run.settings(differences=["qos map dscp 26 to traffic-class 3: missing", "swp20 mtu: 1500 -> 9000"])
    failed, _ = run.judged()
    assert list(failed) == ["config/switch_settings/wrong/leaf0/-/-/-"]


@pytest.mark.parametrize(
    ("part", "value", "what", "words"),
    [
        ("mtu", 1500, "mtu", "MTU: n2/fab0 has 9000 bytes, leaf0/swp2 has 1500 bytes"),
        ("classes", [], "dscp.26", "class of DSCP 26: n2/fab0 has class 3, leaf0/swp2 has class 0"),
    ],
)
def test_a_port_that_does_not_fit_its_host_is_named_with_both_ends(part, value, what, words, run):
    """Catches a mismatch that loses large packets, or puts RoCE into a lossy class, without a word."""
    spoiled = found()
    spoiled["swp2"][part] = value
    run.settings(found=spoiled)
    failed, _ = run.judged()
    assert words in failed[f"config/crosscheck/wrong/n2/rail0/-/what={what}"]
    assert not [cell for cell in failed if "/n1/" in cell or "rail1" in cell]


def test_a_wrong_class_of_ipv4_alone_is_seen(run):
    """Catches a wrong map hidden by the filter of the other IP version, which is still right."""
    spoiled = found()
    next(c for c in spoiled["swp2"]["classes"] if c["class"] == "roce")["traffic_class"] = 1
    run.settings(found=spoiled)
    failed, _ = run.judged()
    assert "leaf0/swp2 has class 1" in failed["config/crosscheck/wrong/n2/rail0/-/what=dscp.26"]


def test_swapped_cables_are_named_with_both_ends(run):
    """Catches two nodes on each other's ports: every test passes, and every later diagnosis is wrong."""
    path = run.raw / "leaf0.after.json"
    text = path.read_text().replace("n1", "nX").replace("n2", "n1").replace("nX", "n2")
    reading = json.loads(text)
    reading["cabling"] = CABLING
    path.write_text(json.dumps(reading))
    failed, _ = run.judged()
    assert len(failed) == 4
    reason = failed["config/crosscheck/wrong/n1/rail0/-/what=cabling"]
    assert "cabling of n1/fab0 and leaf0/swp1 by plan: leaf0/swp1 has n2/fab0 at its other end" in reason


def test_a_second_machine_of_one_name_is_named_as_that(run):
    """Catches: good cables of n2 blamed because another machine calls itself n1."""
    path = run.raw / "leaf0.after.json"
    reading = json.loads(path.read_text().replace("n2", "n1"))
    reading["cabling"] = CABLING
    path.write_text(json.dumps(reading))
    failed, open_ = run.judged()
    assert sorted(failed) == [f"config/crosscheck/wrong/n1/rail{r}/-/what=cabling" for r in (0, 1)]
    assert "n1 is heard on swp1 and swp2: two machines with one name" in failed[min(failed)]
    assert "is not proven: n1 is heard on swp1" in open_["config/crosscheck/wrong/n2/rail0/-/what=cabling"]


def test_a_host_that_differs_is_not_the_switchs_fault_alone(run):
    """Catches a host's PFC or map compared with the intent only."""
    run.host("n1", "fab1", **{"dscp.map": "0-63:0"})
    failed, _ = run.judged()
    assert list(failed) == [
        "config/crosscheck/wrong/n1/rail1/-/what=dscp.26",
        "config/crosscheck/wrong/n1/rail1/-/what=dscp.48",
    ]


def test_what_was_not_read_never_passes(run):
    """Catches a silent switch, a host without a report, and half a file taken for ends that fit."""
    (run.folder / "raw/config.settings.a1/settings.n1.fab0.json").unlink()
    failed, open_ = run.judged()
    assert failed == {}
    assert "config/crosscheck/wrong/n1/rail0/-/what=mtu" in open_
    (run.raw / "leaf0.settings.json").write_text("{")
    _, open_ = run.judged()
    assert "not JSON" in open_["config/switch_settings/wrong/leaf0/rail0/-/port=swp1"]
    (run.raw / "leaf0.settings.json").unlink()
    _, open_ = run.judged()
    assert len([cell for cell in open_ if "switch_settings" in cell]) == 5
    assert len([cell for cell in open_ if "crosscheck" in cell]) == 20


@pytest.mark.parametrize("hostile", [{"pfc.priorities": 3}, {"dscp.map": "x:y"}, {"mtu.host_bytes": -1}])
def test_a_host_that_answers_nonsense_is_undecided(hostile, run):
    """Catches a crash, or a pass, on what a node may have written by itself."""
    run.host("n1", "fab0", **hostile)
    failed, open_ = run.judged()
    assert failed == {}
    assert "n1/fab0 told none" in open_["config/crosscheck/wrong/n1/rail0/-/what=mtu"]


def test_a_port_that_is_shut_is_heard_by_nobody(run):
    """Catches a port without a neighbour counted as rightly cabled."""
    with edited(run.raw / "leaf0.after.json") as reading:
        reading["outputs"]["neighbours"]["stdout"] = '{"lldp": [{"interface": []}]}'
    failed, open_ = run.judged()
    assert failed == {}
    assert "heard no LLDP neighbour" in open_["config/crosscheck/wrong/n1/rail0/-/what=cabling"]


def test_what_a_read_back_never_tells_is_said_and_decides_nothing(tmp_path):
    """Catches cables of OS9 counted as fitting, or a site with OS9 that could never pass."""
    run = Folder(tmp_path / "r1", nos="os9")
    run.settings(nos="os9", found=["dcb enable"])
    failed, open_ = run.judged()
    assert failed == {}
    for what in ("pfc", "dscp.26"):
        kind = what.partition(".")[0]
        said = open_[f"config/crosscheck/wrong/n1/rail0/-/what={what}"]
        assert f"{kind} is not reported by the read-back of os9 (not required)" in said


def test_a_system_that_is_not_known_leaves_the_run_open(tmp_path):
    """Catches an unknown system taken for a switch that fits."""
    run = Folder(tmp_path / "r1", nos="mystery")
    run.settings(nos="mystery", found=["dcb enable"])
    failed, open_ = run.judged()
    assert failed == {}
    said = open_["config/crosscheck/wrong/n1/rail0/-/what=pfc"]
    assert "leaf0/swp1 told none" in said
    assert "not required" not in said
