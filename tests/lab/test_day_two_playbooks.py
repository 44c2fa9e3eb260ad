"""Day two as its pages have it, on three virtual nodes: the timer on the login node, a node that failed, a
firmware day. Every command stands in docs/nightly.md, docs/node-failed.md or docs/firmware-day.md."""

from __future__ import annotations

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
        tmp_path,
        acceptance={"acceptance": {"config": config, **PERFTEST}},
        nightly=NIGHTLY,
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
    assert [a["node"] for a in night["actions"]] == ["n3"], night["actions"]
    assert head.run("ls /var/lib/shakedown/runs")[1].split() == [night["run"]]
    families = {f.name: f for f in text_string_to_metric_families(head.run(f"cat {METRICS}")[1])}
    outcome = {s.labels["outcome"]: s.value for s in families["shakedown_nightly_outcome"].samples}
    assert outcome == {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 0, "NOT-RUN": 0}
    assert families["shakedown_nightly_to_drain"].samples[0].value == 1
    assert f"FAIL lab {night['run']}" in head.run("journalctl --unit=shakedown-nightly --output=cat")[1]
    assert head.run(DRAINED) == (0, ""), "drained without being told to"

    _page_of_a_failed_node(lab_site, head, night["run"])

    store = f"--store {STATE}/history"
    for command, expected in (
        (f"shakedown history show {store} --node n3 --html /tmp/n3.html && test -s /tmp/n3.html", "n3"),
        (f"shakedown history show {store} --node n1 --metric ib_write_bw", "ib_write_bw"),
        (f"shakedown history fleet {store} --html /tmp/fleet.html && test -s /tmp/fleet.html", ""),
        (f"shakedown history compact {store} --keep-days 800", ""),
    ):
        status, said = head.shakedown(command)
        assert status == 0, (command, said)
        assert expected in said, (command, said)


def _page_of_a_failed_node(lab_site, head, run):
    log, folder = f"--log {STATE}/drain.jsonl", f"{STATE}/runs/{run}"
    status, said = head.shakedown(f"shakedown drain propose {folder} {log}")
    assert (status, "n3 would be drained" in said) == (1, True), said
    status, said = head.shakedown(f"shakedown localise {folder}")
    assert status in (0, 1, 3), said
    status, said = head.shakedown(f"shakedown history show --store {STATE}/history --node n3")
    assert (status, "n3" in said) == (0, True), said
    assert head.run(DRAINED) == (0, ""), "looking at the evidence drained a node"

    status, said = head.shakedown(f"shakedown drain propose {folder} {log} --act")
    assert (status, "n3 drained" in said) == (1, True), said
    assert head.run(DRAINED)[1].startswith(f"n3 shakedown: {run}")

    lab_site.lab.ssh("n3", ["ip", "link", "set", "fab0", "mtu", "9000"])
    status, said = head.shakedown(f"shakedown drain begin-retest n3 --partner n1 --partner n2 {log} --act")
    assert (status, "reserved as shakedown_n3" in said) == (0, True), said
    status, said = head.shakedown(
        "shakedown nightly run --only n3 --only n1 --only n2 --access=--reservation=shakedown_n3",
        timeout_s=2400,
    )
    assert status == 0, said
    retest = said.splitlines()[0].split()[2]
    status, said = head.shakedown(f"shakedown drain end-retest n3 {STATE}/runs/{retest} {log} --act")
    assert (status, "n3 given back" in said) == (0, True), said
    assert head.run(DRAINED) == (0, "")
    assert "shakedown_n3" not in head.run("scontrol show reservation")[1]
    assert len(head.run(f"cat {STATE}/drain.jsonl")[1].splitlines()) >= 4


def _second_night_is_refused(head):
    status, said = head.shakedown("shakedown nightly run")
    assert status == 2, said
    assert "another night is still running" in said, said


def test_a_firmware_day(lab_site):
    """Catches: an upgrade that is not named, a metric without a decision, and an effect credited to the
    upgrade although something else changed."""
    folder = lab_site.folder
    day = (
        "-e", "firmware_changed=nic.mtu_bytes", "-e", '{"firmware_nodes": ["n1"]}',
        "-e", f"run_root={folder}", "-e", "firmware_id=day",
    )  # fmt: skip

    def upgrade():
        lab_site.lab.ssh("n1", ["ip", "link", "set", "fab0", "mtu", "4500"])
        time.sleep(2)

    status, said = _at_a_terminal(lab_site, day, "then press Enter", upgrade)
    compared = ("nic.mtu_bytes", "--canary", "n1")
    verdict, printed = _compare(folder, "day", compared)
    assert verdict in (0, 1, 3), printed
    assert (status == 0) == (verdict == 0), said[-4000:]
    first = printed.splitlines()[0]
    assert "day-after against day-before: nic.mtu_bytes changed on 1 node, 2 untouched nodes" in first, (
        printed
    )
    assert first.split()[0] in ("BETTER", "EQUIVALENT", "WORSE", "UNDECIDED"), printed
    decided = [
        line for line in printed.splitlines() if re.match(r"(better|equivalent|worse|undecided) +ib_", line)
    ]
    assert decided, printed
    assert first.split()[0] in said, said[-4000:]

    # The day again from its second half, with a machine in place of the person; an update slipped in.
    (folder / "day-after").rename(folder / "day-after-1")
    lab_site.restore()
    upgrade()
    lab_site.lab.ssh("n2", ["sed", "-i", 's/^PRETTY_NAME="/&Another /', "/etc/os-release"])
    (folder / "upgraded").touch()
    before = (folder / "day-before/verdict.json").stat().st_mtime_ns
    well, said = lab_site.play("firmware.yml", options=(*day, "-e", f"firmware_wait_for={folder}/upgraded"))
    assert not well, said[-4000:]
    assert (folder / "day-before/verdict.json").stat().st_mtime_ns == before, "the run before was made again"
    verdict, printed = _compare(folder, "day", compared)
    assert verdict == 2, printed
    named = [line for line in printed.splitlines() if " node os: " in line or " nic " in line]
    assert len(named) == 1, printed
    assert re.match(r"n2 node os: Debian.* -> Another Debian", named[0]), printed
    assert "more than nic.mtu_bytes changed: n2 node os: " in said, said[-4000:]


def _compare(folder, day, options):
    changed, *rest = options
    runs = [folder / f"{day}-before", folder / f"{day}-after"]
    argv = [BIN / "shakedown", "compare", *runs, "--changed", changed, *rest]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def _at_a_terminal(site, options, question, answer):
    """Run the firmware playbook as a person does: do what it asks for, then press Enter."""
    ours, theirs = pty.openpty()
    argv = [str(BIN / "ansible-playbook"), "-i", str(site.inventory), "playbooks/firmware.yml", *options]
    child = subprocess.Popen(
        argv, cwd=CHECKOUT, env=environment(site.lab.name, site.wheels), pass_fds=(theirs,),
        preexec_fn=partial(os.login_tty, theirs),  # noqa: PLW1509  (the tests' other threads hold no locks here)
    )  # fmt: skip
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
