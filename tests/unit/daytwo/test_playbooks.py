"""Firmware day as people call it: the real playbook and the real comparison around made-up runs."""

import json
import sys
from pathlib import Path

import pytest

from tests.kit.files import script
from tests.kit.run import run_playbook

pytestmark = pytest.mark.slow

# Stands for the acceptance playbook: writes the run that it is asked for, with the new firmware after.
ACCEPTANCE = """#!{python}
import json, os, sys
sys.path.insert(0, {here!r})
from pathlib import Path
from tests.unit.daytwo.fleet import Night, names
from shakedown.judge.judged import judge_folder
from shakedown.run.folder import write_verdict
if "FAKE_REFUSED" in os.environ:
    root = Path(json.loads(sys.argv[-2].partition("=")[2])["run_root"])
    folder = root / sys.argv[-1].rpartition("=")[2]
    folder.mkdir()
    (folder / "refused.txt").write_text(os.environ["FAKE_REFUSED"] + "\\n")
    sys.exit("fatal")
words = [w.partition("=")[2] for w in sys.argv if w.startswith("--extra-vars=")]
run, root = words[1].partition("=")[2], Path(json.loads(words[0])["run_root"])
after, slow = run.endswith("-after"), float(os.environ.get("FAKE_FACTOR", "1"))
new = set(names(24)[:12]) if after and Path({flag!r}).exists() else set()
night = Night(run, nodes=names(24), night=int(after), firmware=dict.fromkeys(new, "22.2"),
              factor=lambda m, n: slow if n in new and m == "write" else 1.0)
write_verdict(night.write(root / run), judge_folder(root / run))
with open({calls!r}, "a") as calls:
    print(run, file=calls)
with open({calls!r} + ".given", "a") as given:
    print(words[0], file=given)
"""


@pytest.fixture
def day(tmp_path):
    """Return a function that runs the playbook; the upgrade is a command that makes a file."""
    programs, flag, calls = tmp_path / "bin", tmp_path / "upgraded", tmp_path / "calls"
    programs.mkdir()
    acceptance = programs / "ansible-playbook"
    here = str(Path(__file__).parents[3])
    script(acceptance, ACCEPTANCE.format(python=sys.executable, here=here, flag=str(flag), calls=str(calls)))
    (programs / "shakedown").symlink_to(Path(sys.executable).with_name("shakedown"))
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("all: {}\n")
    upgrade = f'{{"firmware_upgrade": ["touch", "{flag}"]}}'

    def run(upgrade: str = upgrade, *options: str, **environment: str) -> tuple[int, str, list[str]]:
        words = ["-i", inventory, "playbooks/firmware.yml", "-e"]
        words += [f"run_root={tmp_path} firmware_bin={programs} firmware_id=day", "-e"]
        words += ["firmware_changed=nic.firmware", "-e", upgrade, *options]
        done = run_playbook(*words, ANSIBLE_LOCALHOST_WARNING="0", **environment)
        made = calls.read_text().split() if calls.exists() else []
        return done.returncode, done.stdout + done.stderr, made

    return run


def test_a_bad_upgrade_fails_the_day_and_no_run_is_made_twice(day):
    """Catches: a play that is green after an upgrade that cost 5 %, and one that cannot be gone on with."""
    for _ in range(2):
        status, said, made = day(FAKE_FACTOR="0.95")
        assert (status != 0, made) == (True, ["day-before", "day-after"]), said[-3000:]
        assert "WORSE  day-after against day-before: nic.firmware changed on 12 nodes" in said, said[-3000:]


def test_nobody_there_to_be_asked_stops_the_day(day):
    """Catches: called without a terminal, the question answers itself: one firmware measured twice."""
    status, said, made = day(upgrade="{}")
    assert (status != 0, made) == (True, ["day-before"]), said[-3000:]
    assert "no terminal to ask at" in said, said[-3000:]
    status, said, made = day()
    assert (status, made) == (0, ["day-before", "day-after"]), said[-3000:]


def test_a_day_of_a_part_makes_both_runs_of_it(day, tmp_path):
    """Catches: a firmware day of three nodes that measures the whole site before or after it."""
    _, said, made = day(
        '{"acceptance_nodes": "n[1-3]", "acceptance_mesh": "quick", "acceptance_partners": 0}',
        "-e",
        "firmware_force=true",
        "-e",
        f'{{"firmware_upgrade": ["touch", "{tmp_path}/upgraded"]}}',
    )
    assert made == ["day-before", "day-after"], said[-3000:]
    given = [json.loads(line) for line in (tmp_path / "calls.given").read_text().splitlines()]
    for one in given:
        assert one.pop("run_root") == str(tmp_path)
    assert given == 2 * [
        {
            "acceptance_stages": "config,node,fabric,collective",
            "acceptance_nodes": "n[1-3]",
            "acceptance_mesh": "quick",
            "acceptance_partners": 0,
        }
    ]


def test_a_run_that_was_refused_stops_the_day_with_its_reason(day):
    """Catches: a firmware day that says only that there is no verdict, where another run is under way."""
    status, said, made = day(FAKE_REFUSED="run other of alice on ctl is under way since noon")
    assert (status != 0, made) == (True, [])
    assert "no run before the upgrade: run other of alice on ctl is under way since noon" in " ".join(
        said.split()
    )


def test_a_limit_is_refused_in_a_sentence(day):
    """Catches: --limit n1, with which no play has a host and the day seems to have gone well."""
    status, said, made = day("{}", "--limit", "n1", "-i", "n1,")
    assert (status != 0, made) == (True, []), said[-3000:]
    assert "--limit n1: firmware day makes runs of the whole site" in " ".join(said.split())


def test_with_the_defaults_it_comes_to_its_preflight_and_refuses_what_the_service_cannot_see():
    """Catches: a default that the role itself refuses, and a night whose files lie in another /tmp."""
    words = ("-i", "inventories/lab", "playbooks/nightly.yml", "--check", "-e", "nightly_state=/tmp/state")
    done = run_playbook(*words)
    assert done.returncode == 2, done.stdout
    assert "/tmp/state lies under /tmp" in done.stdout, done.stdout
