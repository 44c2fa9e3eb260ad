"""The acceptance playbook asks the nodes for the plan's software before it writes or submits anything."""

import pytest
from submit_host import SubmitHost

from tests.kit.files import edited

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture
def site(tmp_path):
    """A submit host with two runs planned, whose jobs take perftest from a folder that is not there."""
    made = SubmitHost(tmp_path)
    for run in ("one", "two"):
        made.plan(run)
        with edited(made.runs / run / "jobs.json") as jobs:
            for job in jobs["jobs"]:
                job["software"] = {"perftest": {"from": {"path": "/no/such"}}}
    return made


def test_software_that_nodes_lack_refuses_the_run(site):
    """Catches: jobs that are submitted for a program that is known to be missing; a refusal that has changed
    something, or that nothing gets past."""
    before = sorted(str(path) for path in site.home.rglob("*"))
    status, said = site.play("one", "-e", "software_missing=perhaps")
    assert status != 0 and "software_missing is refuse or not-run, not perhaps" in said, said[-3000:]

    status, said = site.play("one")
    assert status == 2, said[-3000:]
    words = "software.perftest from path /no/such: /no/such does not exist: on n1, n2 (2 of 2 nodes)"
    assert words in said, said[-3000:]
    assert (site.runs / "one/refused.txt").read_text().startswith(words)
    assert sorted(str(path) for path in site.home.rglob("*")) == before
    assert site.text("stages") == ""

    status, said = site.play("two", "-e", "software_missing=not-run")
    assert "Report:" in said, said[-3000:]
    assert site.text("stages").split()[0] == "config"


def test_a_submit_host_that_is_away_is_the_verdicts_own_reason(site, shakedown):
    """Catches: a run that measured nothing, of whose reason only Ansible's log has a word."""
    with edited(site.inventory) as inventory:
        head = inventory["all"]["children"]["submit"]["hosts"]["head"]
        head |= {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    status, said = site.play("one", "-e", "software_missing=not-run", quick=False)
    words = "the submit host head did not answer before the first stage"
    assert status != 0 and words in said, said[-3000:]
    run = site.runs / "one"
    shakedown("collect", run)
    status, said, _ = shakedown("verdict", run)
    assert status == 3 and words in said.splitlines()[0], said
