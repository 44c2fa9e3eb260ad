"""Day two as its pages have it, on three virtual nodes: the timer on the login node, a node that failed, a
firmware day. Every command stands in nightly.md, node-failed.md or firmware-day.md of docs/how-to."""

import os
import pty
import re
import subprocess
import time
from functools import partial

import pytest
from conftest import NAME, converged, inventory_with
from login_node import PROJECT, SITE, login_node
from prometheus_client.parser import text_string_to_metric_families

from lab.acceptance import BIN, environment
from lab.paths import CHECKOUT

pytestmark = [pytest.mark.lab, pytest.mark.timeout(4800)]

NODES = ("n1", "n2", "n3")
PERFTEST = {
    "perftest": [{"test": "ib_write_bw", "size_bytes": 65536, "iterations": 300}],
    "measurement_timeout_s": 90,
    "qp_timeout": 19,
}
STATE = "/var/lib/shakedown"
METRICS = "/var/lib/prometheus/node-exporter/shakedown.prom"
NIGHTLY = {"nightly_textfile": METRICS}
DRAINED = "sinfo --noheader --states=drain --Node --format='%N %E'"


@pytest.fixture(scope="module")
def converged_site(tmp_path_factory):
    """A lab of three compute nodes with little to measure."""
    folder = tmp_path_factory.mktemp("pages")
    inventory = inventory_with(folder, acceptance={"acceptance": PERFTEST}, nightly=NIGHTLY)
    with converged(len(NODES), f"{NAME}d", folder, inventory) as made:
        yield made


@pytest.fixture
def lab_site(converged_site):
    """That lab as it was right after the playbook."""
    converged_site.restore()
    return converged_site


@pytest.fixture
def head(lab_site, tmp_path):
    """Its login node, with the project, where settings are read back every night as well."""
    config = {"link_speed": False, "targets": ["environment", "pinning"]}
    inventory = inventory_with(
        tmp_path, acceptance={"acceptance": {"config": config, **PERFTEST}}, nightly=NIGHTLY
    )
    node = login_node(lab_site.lab, lab_site.wheels, inventory, tmp_path)
    # Where node_exporter is installed its folder is there.
    status, said = node.run(f"mkdir -p {METRICS.rpartition('/')[0]}")
    assert status == 0, said
    return node


def test_the_pages_of_the_nightly_and_of_a_failed_node(lab_site, head):
    """Catches: a service that cannot run what it is told to, a timer that is not there, two nights at once,
    and a command of the pages that does not do what the page says."""
    status, said = head.shakedown("ansible-playbook -i inventories/SITE playbooks/nightly.yml")
    assert status == 0, said[-4000:]
    assert re.search(r"all in \d+ idle nights? of 300 s, in groups of 4", said), said[-4000:]
    status, said = head.shakedown("ansible-playbook -i inventories/SITE playbooks/nightly.yml")
    assert status == 0, said[-4000:]
    assert re.search(r"localhost +: ok=\d+ +changed=0 +unreachable=0 +failed=0 ", said), said[-4000:]
    options = ("nightly_host=head", f"nightly_checkout={PROJECT}", f"nightly_inventory={SITE}")
    well, said = lab_site.play("nightly.yml", options=tuple(x for o in options for x in ("-e", o)))
    assert well, said[-4000:]
    assert re.search(r"head +: ok=\d+ +changed=0 +unreachable=0 +failed=0 ", said), said[-4000:]
    status, said = head.run(
        "systemctl list-timers shakedown-nightly.timer; systemctl is-enabled shakedown-nightly.timer"
    )
    assert (status, said.split()[-1]) == (0, "enabled"), said
    assert re.search(r"shakedown-nightly\.timer +shakedown-nightly\.service", said), said

    lab_site.lab.ssh("n3", ["ip", "link", "set", "fab0", "mtu", "1500"])
    head.quick()
    night = head.night_while(lambda: _second_night_is_refused(head))
    assert (night["outcome"], night["planned"] > 0) == ("FAIL", True), night
    assert [a["node"] for a in night["actions"] if a["action"] == "drain"] == ["n3"], night["actions"]
    assert head.run("ls /var/lib/shakedown/runs")[1].split() == [night["run"]]
    families = {f.name: f for f in text_string_to_metric_families(head.run(f"cat {METRICS}")[1])}
    outcome = {s.labels["outcome"]: s.value for s in families["shakedown_nightly_outcome"].samples}
    assert outcome == {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 0, "NOT-RUN": 0}
    assert families["shakedown_nightly_to_drain"].samples[0].value == 1
    assert f"FAIL lab {night['run']}" in head.run("journalctl --unit=shakedown-nightly --output=cat")[1]
    assert head.run(DRAINED) == (0, ""), "drained without being told to"

    _page_of_a_failed_node(lab_site, head, night["run"])

    _page_of_the_history(head, night["run"])


def _page_of_the_history(head, run):
    page = partial(_line, head, f"RUN={STATE}/runs/{run} STORE={STATE}/history")
    for expected, command in (
        ((0, "n3"), "shakedown history show --store $STORE --node n3 --html n3.html && test -s n3.html"),
        ((0, "ib_write_bw"), "shakedown history show --store $STORE --node n1 --metric ib_write_bw"),
        ((0, ""), "shakedown history fleet --store $STORE --html fleet.html && test -s fleet.html"),
        ((0, ""), "shakedown history ingest --store $STORE $RUN"),
        ((0, ""), "shakedown history compact --store $STORE --keep-days 800"),
        (
            (2, "nights"),
            "shakedown references baseline lab --store $STORE > baseline.diff",
        ),  # two nights are too few
    ):
        page(expected, command)


def _page_of_a_failed_node(lab_site, head, run):
    given = f"RUN={STATE}/runs/{run} LOG={STATE}/drain.jsonl NODE=n3"
    page = partial(_line, head, given)
    page((1, "n3 would be drained"), "shakedown drain propose $RUN --log $LOG")
    page((0, "0 causes"), "shakedown localise $RUN")  # a small MTU slows no pair
    page((0, "n3"), f"shakedown history show --store {STATE}/history --node $NODE")
    assert head.run(DRAINED) == (0, ""), "looking at the evidence drained a node"
    page((1, "n3 drained"), "shakedown drain propose $RUN --log $LOG --act")
    assert head.run(DRAINED)[1].startswith(f"n3 shakedown: {run}")

    lab_site.lab.ssh("n3", ["ip", "link", "set", "fab0", "mtu", "9000"])
    partners = "--partner n1 --partner n2"
    page((0, "reserved as shakedown_n3"), f"shakedown drain begin-retest $NODE {partners} --log $LOG --act")
    only = "--only $NODE --only n1 --only n2"
    said = page(
        (0, "PASS lab night-"), f"shakedown nightly run {only} --access=--reservation=shakedown_$NODE"
    )
    retest = said.split()[2]
    page = partial(_line, head, f"{given} RETEST={STATE}/runs/{retest}")
    page((0, "n3 given back"), "shakedown drain end-retest $NODE $RETEST --log $LOG --act")
    assert head.run(DRAINED) == (0, "")
    assert "shakedown_n3" not in head.run("scontrol show reservation")[1]
    page((2, "n3 nic fab0 mtu_bytes: 1500 -> 9000"), "shakedown compare $RUN $RETEST")
    page((0, ""), "shakedown seal $RUN --key ~/.ssh/id_ed25519")


def _line(head, given, expected, command):
    """Run a line of a page; check its exit status and a part of what it prints, and return that."""
    status, said = head.shakedown(f"{given}; {command}", timeout_s=2400)
    assert (status, expected[1] in said) == (expected[0], True), f"{command} ended with {status}:\n{said}"
    return said


def _second_night_is_refused(head):
    status, said = head.shakedown("shakedown nightly run")
    assert status == 2, said
    assert "another night is still running" in said, said


def test_a_firmware_day(lab_site):
    """Catches: an upgrade that is not named, a metric without a decision, and an effect credited to the
    upgrade although something else changed."""
    runs = lab_site.folder
    named = ("-e", "firmware_changed=nic.mtu_bytes", "-e", '{"firmware_nodes": ["n1"]}', "-e")
    named += (f"run_root={runs}",)

    def upgrade():
        lab_site.lab.ssh("n1", ["ip", "link", "set", "fab0", "mtu", "4500"])
        time.sleep(2)

    status, said = _at_a_terminal(lab_site, named, "then press Enter", upgrade)
    (before,) = runs.glob("firmware-*-before")
    day = before.name.removesuffix("-before")
    after = runs / f"{day}-after"
    verdict, printed = _compare(before, after)
    assert verdict in (0, 1, 3), printed + said[-4000:]
    first, *table = printed.splitlines()
    assert first.split()[0] in ("BETTER", "EQUIVALENT", "WORSE", "UNDECIDED"), printed
    what = f"{after.name} against {before.name}: nic.mtu_bytes changed on 1 node, 2 untouched nodes"
    assert first.endswith(what), printed
    assert [
        line for line in table if re.match(r"(better|equivalent|worse|undecided) +fabric/ib_write_bw/", line)
    ], printed
    assert (status == 0, what in " ".join(said.split())) == (verdict == 0, True), said[-4000:]

    # The day again from its second half, with a file in place of the person; an update slipped in.
    after.rename(runs / "put-aside")
    lab_site.restore()
    upgrade()
    lab_site.lab.ssh("n2", ["sed", "-i", 's/^PRETTY_NAME="/&Another /', "/etc/os-release"])
    (runs / "upgraded").touch()
    made = (before / "verdict.json").stat().st_mtime_ns
    again = (*named, "-e", f"firmware_id={day}", "-e", f"firmware_wait_for={runs}/upgraded")
    well, said = lab_site.play("firmware.yml", options=again)
    assert not well, said[-4000:]
    assert (before / "verdict.json").stat().st_mtime_ns == made, "the run before was made again"
    verdict, printed = _compare(before, after)
    assert verdict == 2, printed
    listed = printed.splitlines()[:-1]
    assert len(listed) == 1, printed
    assert re.fullmatch(r"n2 node os: Debian.* -> Another Debian.*", listed[0]), printed
    assert "more than nic.mtu_bytes changed: n2 node os: " in " ".join(said.split()), said[-4000:]


def _compare(before, after):
    argv = [BIN / "shakedown", "compare", before, after, "--changed", "nic.mtu_bytes", "--canary", "n1"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def _at_a_terminal(site, options, question, answer):
    """Run the firmware playbook as a person does: do what it asks for, then press Enter."""
    ours, theirs = pty.openpty()
    argv = [str(BIN / "ansible-playbook"), "-i", str(site.inventory), "playbooks/firmware.yml", *options]
    child = subprocess.Popen(
        argv,
        cwd=CHECKOUT,
        env=environment(site.lab.name, site.wheels),
        pass_fds=(theirs,),
        preexec_fn=partial(os.login_tty, theirs),  # noqa: PLW1509  (the tests' other threads hold no locks here)
    )
    os.close(theirs)
    said, answered = "", False
    while True:
        try:
            some = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        said += some.decode(errors="replace")
        if question in said and not answered:
            answered = True
            answer()
            os.write(ours, b"\r")
    os.close(ours)
    assert answered, said[-4000:]
    return child.wait(), said
