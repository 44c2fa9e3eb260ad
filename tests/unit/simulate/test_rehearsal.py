"""A site's own plan is rehearsed, planted faults are found, and nobody can take it for what was measured."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from shakedown.evidence.signatures import sign
from shakedown.run.folder import SIGNATURE, SUMS, run_files
from tests.kit.cases import cases
from tests.kit.key import make_key, make_signers
from tests.kit.site import CHECKOUT

SITES = sorted(folder.name for folder in (CHECKOUT / "inventories").iterdir() if folder.is_dir())
SAYS = "SIMULATED, no hardware was measured: "


def rehearse(shakedown, folder: Path, site: str, *faults: str) -> Path:
    """Rehearse a shipped site."""
    given = [word for fault in faults for word in ("--fault", fault)]
    assert shakedown("simulate", folder, "--site", CHECKOUT / "inventories" / site, *given)[0] == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", SITES)
def test_every_shipped_plan_can_be_rehearsed_and_a_healthy_one_fails_nothing(shakedown, tmp_path, name):
    """Catches: a metric, contract or counter whose rehearsed value lies outside its own reference."""
    status, out, _ = shakedown("verdict", rehearse(shakedown, tmp_path / name, name))
    open_for_want_of_data = name == "primergy_cdi"  # images and labels, which a plan cannot make up
    assert (status, out.split()[0]) == ((3, "NOT-RUN") if open_for_want_of_data else (0, "PASS"))
    assert out.partition("  ")[2].startswith(SAYS)


@cases(
    "fault, says",
    ("nic-tx:20%@xe9680-2/rail3", "the mesh's results blame xe9680-2's NIC on rail3, sending (-20 %"),
    ("nic-rx:20%@xe9680-2/rail3", "the mesh's results blame xe9680-2's NIC on rail3, receiving (-20 %"),
    ("lossy-cable@xe9680-8/rail0", "blame cable xe9680-8 rail0 leaf0:"),
    ("slow-node@xe9680-4", "the mesh's results blame node xe9680-4 (-10 %"),
)
@pytest.mark.slow
def test_a_planted_fault_is_named_by_the_sites_own_names(shakedown, tmp_path, fault, says):
    """Catches: a fault that touches other cells than its own, or none."""
    run = rehearse(shakedown, tmp_path / "run", "tolly_xe9680_z9664f", fault)
    status, out, _ = shakedown("verdict", run)
    assert status == 1 and out.startswith(f"FAIL  {SAYS}") and says in out.splitlines()[0]


@cases(
    "fault, says",
    ("spine", "--fault spine is not for --site"),
    ("nic-tx@n9", "the plan has no node 'n9'"),
    ("nic-tx@n1/rail9", "the plan has no rail 'rail9'"),
    ("nic-tx:200%@n1", "not a loss"),
)
def test_a_fault_of_no_part_of_the_site_is_refused(shakedown, tmp_path, fault, says):
    """Catches: a fault that is planted nowhere, so that the rehearsal passes; a half-written run."""
    words = ("--site", CHECKOUT / "inventories/lab", "--fault", fault)
    status, _, err = shakedown("simulate", tmp_path / "run", *words)
    assert (status, err.count("\n")) == (2, 1) and says in err
    assert not (tmp_path / "run").exists()


def test_all_that_is_made_of_it_says_simulated(shakedown, tmp_path):
    """Catches: a page, its print, a metric or a line of a build that shows the PASS of nothing."""
    run = rehearse(shakedown, tmp_path / "run", "lab")
    assert shakedown("verdict", run, "--write")[0] == 0
    status, out, _ = shakedown("report", run)
    assert status == 0 and out.startswith(f"PASS  {SAYS}")
    assert json.loads((run / "verdict.json").read_text())["reason"].startswith(SAYS)
    page = (run / "report.html").read_text()
    assert '<p class="simulated" role="alert">SIMULATED' in page and "<title>SIMULATED" in page
    assert "<span></span>Signature" not in page
    assert (run / "report.md").read_text().startswith("# SIMULATED PASS")
    assert 'testsuites name="SIMULATED ' in (run / "junit.xml").read_text()
    series = [line for line in (run / "metrics.prom").read_text().splitlines() if line[0] != "#"]
    assert series and all('simulated="1"' in line for line in series)


def test_nothing_that_is_of_real_machines_takes_it(shakedown, tmp_path):
    """Catches: a simulated PASS that is sealed, ordered, verified, compared, kept in the history, learnt
    from, or of which nodes are drained; and the same once its plan no longer says what it is."""
    run = rehearse(shakedown, tmp_path / "run", "lab")
    shakedown("verdict", run, "--write")
    shakedown("report", run)
    key, hosts = make_key(tmp_path, "key"), tmp_path / "known_hosts"
    hosts.write_text("".join(f"n{n} {(tmp_path / 'key.pub').read_text()}" for n in (1, 2)))
    other = shutil.copytree(run, tmp_path / "other")
    attempts = [
        ("seal", run, "--key", key),
        ("verify", run, "--signers", make_signers(tmp_path / "signers", {"me": key})),
        ("order", run, "--key", key, "--hosts", hosts, "--user", 1000),
        ("compare", run, other, "--changed", "nic.firmware"),
        ("history", "ingest", run, "--store", tmp_path / "history"),
        ("references", "propose", run, "--profile", "mine"),
        ("sweeps", f"a={run}", f"b={other}"),
        ("interconnect", f"a={run}"),
        ("drain", "propose", run),
    ]
    text = (run / "plan.json").read_text()
    for stripped in (False, True):
        (run / "plan.json").write_text(
            text.replace('"simulated":true', '"simulated":false') if stripped else text
        )
        sums = "".join(
            f"{sha256((run / n).read_bytes()).hexdigest()}  {n}\n" for n in run_files(run)
        ).encode()
        (run / SIGNATURE).write_bytes(sign(sums, key))
        (run / SUMS).write_bytes(sums)
        for words in attempts:
            status, out, err = shakedown(*words)
            assert status == 2, (words, out, err)
            assert not out.startswith(("VERIFIED", "sealed", "ordered"))
            if words[0] not in ("seal", "order", "verify") and not stripped:
                assert "is a SIMULATED run: no hardware was measured" in err, words
    assert not (tmp_path / "history").exists()
    assert shakedown("verdict", run)[0] == 2


@pytest.mark.slow
def test_what_has_no_reference_yet_is_rehearsed_as_measured(shakedown, tmp_path):
    """Catches: a healthy rehearsal in which what is to be learnt is 0, as of a dead link."""
    site = tmp_path / "site"
    shutil.copytree(CHECKOUT / "inventories/pt_r7615_bcm57508", site)
    file = site / "group_vars/all/acceptance.yml"
    storage = "  storage: [{name: scratch, path: /scratch}]\n"
    text = file.read_text().replace("acceptance:\n", f"acceptance:\n{storage}", 1)
    assert storage in text
    file.write_text(text)
    assert shakedown("simulate", tmp_path / "r", "--site", site)[0] == 0
    status, out, _ = shakedown("verdict", tmp_path / "r")
    assert (status, out.split()[0]) == (3, "BASELINE"), out[:400]
