"""Sealed bundles: what is changed, added or removed afterwards is named; a stranger's seal is no seal."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from shakedown.collect.run import collect
from shakedown.commands import cli
from shakedown.evidence import attribution, signatures
from shakedown.judge.judged import judge_folder
from shakedown.records.base import Outcome
from shakedown.records.reading import BadInput, read_record
from shakedown.records.results import JobRecord
from shakedown.records.verdict import verdict_to_json
from shakedown.records.writing import aside_of, write_aside
from shakedown.report import seal as bundle
from shakedown.run.folder import write_verdict
from tests.kit.archive import unpack
from tests.kit.cases import cases
from tests.kit.files import edited
from tests.kit.key import NEEDS_SSH_KEYGEN, make_key, make_signers
from tests.kit.refusal import refused

RUNS = Path(__file__).parents[2] / "runs"

pytestmark = NEEDS_SSH_KEYGEN


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Two keys, of which `signers` trusts the first."""
    folder = tmp_path_factory.mktemp("keys")
    alice, mallory = make_key(folder, "alice"), make_key(folder, "mallory")
    return alice, mallory, make_signers(folder / "signers", {"alice@site": alice})


@pytest.fixture(scope="module")
def small(tmp_path_factory, keys, decision_runs):
    """A sealed run of one job of the lab, so that it costs little to collect."""
    run = tmp_path_factory.mktemp("small") / "20261120T132502Z"
    unpack(RUNS / "lab_healthy/run.tar.xz", run)
    for name, key, wanted in (("plan", "items", "test"), ("jobs", "jobs", "kind")):
        with edited(run / f"{name}.json") as document:
            document[key] = [
                part
                for part in document[key]
                if part[wanted] == "mpi_pingpong" and "counter." not in part.get("metric", "")
            ]
    for folder in run.glob("raw/*"):
        if "mpi_pingpong" not in folder.name:
            shutil.rmtree(folder)
    shutil.copy(decision_runs / "bug02_failure_overwritten/run/raw/check.log", run / "raw/reframe.check.txt")
    collect(run)
    write_verdict(run, judge_folder(run))
    bundle.seal(run, keys[0])
    return run


@pytest.fixture
def sealed(tmp_path, small):
    """A sealed run with a raw file."""
    return Path(shutil.copytree(small, tmp_path / small.name))


def reseal_sums(run: Path) -> None:
    """Do what a forger can without the key: write matching checksums."""
    names = sorted(p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file())
    names = [n for n in names if not n.startswith("SHA256SUMS")]
    done = subprocess.run(["sha256sum", *names], cwd=run, capture_output=True, check=True, timeout=60)
    (run / "SHA256SUMS").write_bytes(done.stdout)


def test_sealed_run_verifies(sealed, keys):
    """Catches a seal that does not verify, and a verdict that is lost on the way."""
    found = bundle.verify(sealed, keys[2])
    assert found.authentic and found.differs is None
    assert found.signer == "alice@site"
    assert found.outcome is Outcome.NOT_RUN  # of all but one job there is nothing
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=sealed, check=False, timeout=60)
    assert done.returncode == 0, "sha256sum itself must understand the file"


def test_sealing_twice_gives_the_same_sums(sealed, keys):
    """Catches sums that include the seal itself or depend on the order of the directory."""
    before = (sealed / "SHA256SUMS").read_bytes()
    bundle.seal(sealed, keys[0])
    assert (sealed / "SHA256SUMS").read_bytes() == before
    assert bundle.verify(sealed, keys[2]).authentic


@pytest.mark.parametrize("name", ["plan.json", "raw/reframe.check.txt", "results.jsonl", "verdict.json"])
def test_changed_file_is_named(sealed, keys, name):
    """Catches a changed byte in any file."""
    content = bytearray((sealed / name).read_bytes())
    content[-2] ^= 1
    (sealed / name).write_bytes(content)
    found = bundle.verify(sealed, keys[2])
    assert not found.authentic and found.differs == name


def test_first_of_several_is_named(sealed, keys):
    """Catches an order that depends on the file system."""
    for name in ("verdict.json", "raw/reframe.check.txt", "results.jsonl"):
        (sealed / name).write_text("x")
    assert bundle.verify(sealed, keys[2]).differs == "raw/reframe.check.txt"


def test_added_and_removed_files_are_named(sealed, keys):
    """Catches evidence that is slipped in or out."""
    (sealed / "inventory.jsonl").write_text("")
    found = bundle.verify(sealed, keys[2])
    assert found.differs == "inventory.jsonl" and "added after sealing" in found.reason
    (sealed / "inventory.jsonl").unlink()
    (sealed / "raw" / "reframe.check.txt").unlink()
    found = bundle.verify(sealed, keys[2])
    assert found.differs == "raw/reframe.check.txt" and "missing" in found.reason


@cases(
    "sealed_too, words",
    (False, "pad0 is not in SHA256SUMS: it was added after sealing"),
    (True, "its files say that they have more than"),
)
def test_a_bundle_that_unpacks_to_far_more_is_not_copied(sealed, keys, monkeypatch, sealed_too, words):
    """Catches: some kB with sparse files that become gigabytes in a folder that may be memory."""
    monkeypatch.setattr(bundle, "MOST_BYTES", 1 << 30)
    for number in range(5):
        (sealed / f"pad{number}").touch()
        os.truncate(sealed / f"pad{number}", 250 << 20)
    if sealed_too:
        with (sealed / "SHA256SUMS").open("a") as sums:
            sums.writelines(f"{'0' * 64}  pad{number}\n" for number in range(5))
    monkeypatch.setattr(bundle, "_copied", None)
    if sealed_too:
        refused(words, bundle.verify, sealed, keys[2])
    else:
        assert bundle.verify(sealed, keys[2]).reason == words


def test_nothing_is_copied_that_nobody_signed(sealed, keys, monkeypatch):
    """Catches: a bundle of anybody's that is written to disk and hashed before its signature is looked at."""
    with (sealed / "SHA256SUMS").open("a") as sums:
        sums.write(f"{'0' * 64}  more\n")
    (sealed / "more").touch()
    monkeypatch.setattr(bundle, "_copied", None)
    assert bundle.verify(sealed, keys[2]).differs == "SHA256SUMS.sig"


def test_a_hole_stays_one_in_the_copy_that_is_judged(tmp_path, sealed):
    """Catches: a sealed sparse file that takes all its room where it is verified."""
    with (sealed / "raw/pad").open("wb") as file:
        file.truncate(100 << 20)
        file.seek(50 << 20)
        file.write(b"x")
    bundle._copied(sealed, tmp_path / "copy", {})
    copy = tmp_path / "copy/raw/pad"
    assert copy.stat().st_blocks * 512 <= 2 << 20 and copy.read_bytes() == (sealed / "raw/pad").read_bytes()


@pytest.mark.parametrize("moment", ["as it lists the files", "between its sums and its signature"])
def test_two_that_seal_at_once_never_both_say_so_of_what_does_not_verify(sealed, keys, monkeypatch, moment):
    """Catches: the other's half file sealed as one of the run's; one's sums with the other's signature."""
    done = list[str]()

    def meanwhile(path: Path, content: bytes) -> None:
        done.append(path.name)
        write_aside(path, content)
        if len(done) == 2:  # the other has put its own there
            write_aside(sealed / "SHA256SUMS", b"another list\n")

    monkeypatch.setattr(bundle, "write_aside", meanwhile)
    if moment.startswith("as"):
        (sealed / aside_of("SHA256SUMS.sig")).write_bytes(b"half")
        refused("is being written", bundle.seal, sealed, keys[0])
        assert not done
    else:
        refused("sealed by another process", bundle.seal, sealed, keys[0])


def test_forged_sums_do_not_verify(sealed, keys):
    """Catches trust in checksums that anybody can rewrite."""
    (sealed / "raw" / "reframe.check.txt").write_text("INFO: check_pass n1\n")
    reseal_sums(sealed)
    for signers in (keys[2], None):
        found = bundle.verify(sealed, signers)
        assert found.differs == "SHA256SUMS.sig" and not found.authentic


def test_stranger_is_not_trusted(sealed, keys):
    """Catches a signature by anybody taken for one by a trusted signer."""
    bundle.seal(sealed, keys[1])
    found = bundle.verify(sealed, keys[2])
    assert found.differs == "SHA256SUMS.sig" and "nobody" in found.reason


def test_signature_for_another_purpose_is_not_accepted(sealed, keys):
    """Catches a signature that alice made over the same bytes in another namespace."""
    command = ["ssh-keygen", "-Y", "sign", "-q", "-f", str(keys[0]), "-n", "file"]
    sums = (sealed / "SHA256SUMS").read_bytes()
    done = subprocess.run(command, input=sums, capture_output=True, check=True, timeout=60)
    (sealed / "SHA256SUMS.sig").write_bytes(done.stdout)
    for signers in (keys[2], None):
        assert bundle.verify(sealed, signers).differs == "SHA256SUMS.sig"


def test_without_signers_nothing_is_vouched_for(sealed):
    """Catches a green light for an intact bundle that anyone may have made."""
    found = bundle.verify(sealed, None)
    assert found.differs is None and not found.authentic and "--signers" in found.reason


def test_verdict_is_recomputed(sealed, keys):
    """Catches a signed verdict that the raw results do not give: even its rightful signer cannot forge it."""
    forged = (sealed / "verdict.json").read_text().replace('"PASS"', '"FAIL"')
    (sealed / "verdict.json").write_text(forged)
    refused(r"verdict\.json: is not what the raw results give: line \d+ says", bundle.seal, sealed, keys[0])
    reseal_sums(sealed)
    command = ["ssh-keygen", "-Y", "sign", "-q", "-f", str(keys[0]), "-n", "shakedown"]
    sums = (sealed / "SHA256SUMS").read_bytes()
    done = subprocess.run(command, input=sums, capture_output=True, check=True, timeout=60)
    (sealed / "SHA256SUMS.sig").write_bytes(done.stdout)
    found = bundle.verify(sealed, keys[2])
    assert found.differs == "verdict.json" and "recomputed" in found.reason


@cases(
    "line, words",
    ("0" * 64 + "  ../../etc/passwd", "not a checksum of a file in here"),
    ("0" * 64 + "  /etc/passwd", "not a checksum of a file in here"),
    ("0" * 63 + "  plan.json", "not a checksum"),
    ("0" * 64 + " *plan.json", "not a checksum"),
    ("# comment", "not a checksum"),
)
def test_bad_sums_are_refused(sealed, keys, line, words):
    """Catches checksums that reach out of the bundle or are skipped."""
    with (sealed / "SHA256SUMS").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(BadInput, match=words) as told:
        bundle.verify(sealed, keys[2])
    assert told.value.line == (sealed / "SHA256SUMS").read_text().count("\n")


def test_links_are_refused(sealed, keys):
    """Catches a link that would be checksummed as the file it points to."""
    (sealed / "raw" / "link").symlink_to("/etc/hostname")
    refused("link or special file", bundle.verify, sealed, keys[2])


def test_key_that_is_none(sealed, keys, tmp_path):
    """Catches a failed signature that leaves a sealed look, or the old seal broken."""
    (tmp_path / "nokey").write_text("nothing")
    before = {p.name: p.read_bytes() for p in sealed.iterdir() if p.is_file()}
    refused("ssh-keygen", bundle.seal, sealed, tmp_path / "nokey")
    assert {p.name: p.read_bytes() for p in sealed.iterdir() if p.is_file()} == before


def test_secrets_are_not_sealed(sealed, keys, capsys, monkeypatch):
    """Catches a bundle that hands on a token, and a redaction that breaks what it touches."""
    leak = next(sealed.glob("raw/*mpi_pingpong*")) / "all_reduce.json"
    leak.write_bytes(b'{"env": ["HF_TOKEN=abc"], "bw": 390.1, "odd": "\xff"}')
    refused(r"all_reduce\.json: holds an environment dump", bundle.seal, sealed, keys[0])
    monkeypatch.setattr(sys, "argv", ["shakedown", "seal", str(sealed), "--key", str(keys[0]), "--redact"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert f"redacted: {leak.relative_to(sealed)}" in capsys.readouterr().out
    assert leak.read_bytes() == b'{"env": [], "bw": 390.1, "odd": "\xff"}'
    assert bundle.verify(sealed, keys[2]).authentic


def test_commands(sealed, keys, capsys, monkeypatch):
    """Catches an exit status that says yes to an unknown signer or a changed file."""

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["shakedown", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0)

    assert run("seal", str(sealed), "--key", str(keys[0])) == 0
    assert run("verify", str(sealed), "--signers", str(keys[2])) == 0
    assert run("verify", str(sealed)) == 3
    capsys.readouterr()
    (sealed / "plan.json").write_text("{}")
    assert run("verify", str(sealed), "--signers", str(keys[2]), "--json") == 1
    assert json.loads(capsys.readouterr().out)["differs"] == "plan.json"
    (sealed / "SHA256SUMS.sig").unlink()
    assert run("verify", str(sealed.parent), "--signers", str(keys[2])) == 2


def test_an_order_until_the_end_of_time(sealed):
    """Catches: OverflowError for not_after 9999-12-31, to which no slack can be added."""
    made = SimpleNamespace(not_before="0001-01-01T00:00:00Z", not_after="9999-12-31T23:59:59Z")
    (job,) = sealed.glob("raw/*/job.json")
    record = read_record(job, JobRecord)
    assert not list(attribution._account(sealed, job.parent.name, record, made))
    made.not_before = made.not_after
    assert "out of time" in str(next(attribution._account(sealed, job.parent.name, record, made)))


@pytest.mark.parametrize("words", ["verdict", "verdict --json", "verdict --write", "collect"])
def test_no_command_alters_a_sealed_run(sealed, keys, shakedown, words):
    """Catches: a look at a damaged file, after which the bundle differs though the file was put back."""
    (job,) = sealed.glob("raw/*/job.json")
    honest = job.read_bytes()
    job.write_bytes(honest[:10])
    command, *options = words.split()
    status, _, said = shakedown(command, sealed, *options)
    assert status == 2 and ("is sealed" in said) == (command == "collect"), said
    job.write_bytes(honest)
    assert bundle.verify(sealed, keys[2]).authentic


def test_a_verdict_sealed_with_every_cell_in_full_stays(sealed, keys, shakedown, monkeypatch):
    """Catches: a bundle of an earlier release that "was changed", or that a look at its verdict rewrites."""
    content = (sealed / "verdict.json").read_bytes()
    monkeypatch.setattr("shakedown.records.verdict._IN_FULL", -1)  # all cells passed: this is more
    assert verdict_to_json(judge_folder(sealed)) != content
    assert shakedown("verdict", sealed, "--write")[0] == 3
    assert (sealed / "verdict.json").read_bytes() == content
    assert bundle.verify(sealed, keys[2]).authentic


def resign(run: Path, key: Path) -> None:
    """Do what a forger can who has the key: sign matching checksums."""
    reseal_sums(run)
    (run / "SHA256SUMS.sig").write_bytes(signatures.sign((run / "SHA256SUMS").read_bytes(), key))


@cases("content", None, '{"schema": 1, "run": "20261120T132502Z", "jobs": [], "nics": {}}')
def test_results_without_jobs_prove_nothing(sealed, keys, content):
    """Catches: forged results.jsonl "recomputed" from itself, because nothing says which jobs it is of."""
    (sealed / "jobs.json").unlink()
    if content:
        (sealed / "jobs.json").write_text(content)
    resign(sealed, keys[0])
    found = bundle.verify(sealed, keys[2])
    assert found.differs == "jobs.json" and "missing or has no jobs" in found.reason
    refused(r"jobs\.json: is missing or has no jobs", bundle.seal, sealed, keys[0])


def test_an_empty_folder_is_seen(sealed, keys):
    """Catches: a folder slipped in, which no checksum is of."""
    (sealed / "raw/fabric.ib_write_bw.a2/deep").mkdir(parents=True)
    found = bundle.verify(sealed, keys[2])
    assert found.differs == "raw/fabric.ib_write_bw.a2/deep" and "empty folder" in found.reason
    bundle.seal(sealed, keys[0])
    assert not (sealed / "raw/fabric.ib_write_bw.a2").exists()
    assert bundle.verify(sealed, keys[2]).authentic


@pytest.mark.slow
def test_a_report_is_what_the_files_give(sealed, keys, shakedown):
    """Catches: a page that says PASS over a run that failed, sealed by somebody with a key."""
    for name in ("SHA256SUMS", "SHA256SUMS.sig"):
        (sealed / name).unlink()
    assert shakedown("report", sealed)[0] == 3
    resign(sealed, keys[0])
    assert bundle.verify(sealed, keys[2]).authentic
    for name in ("report.html", "report.md", "junit.xml", "metrics.prom"):
        honest = (sealed / name).read_bytes()
        (sealed / name).write_bytes(honest.replace(b"PASS", b"GOOD") + b"\n")
        resign(sealed, keys[0])
        found = bundle.verify(sealed, keys[2])
        assert found.differs == name and "not what this release makes" in found.reason
        refused("is not what the run's files give", bundle.seal, sealed, keys[0])
        (sealed / name).write_bytes(honest)


@cases(
    ("name", "words"),
    *((name, "is a pattern") for name in ("*", "*@site", "alice@site,*", "?")),
    *((name, "holds what is no letter") for name in ("alice\x1b[2J", '"a\rVERIFIED"')),
)
def test_a_pattern_is_no_name(sealed, keys, tmp_path, name, words):
    """Catches: a list in which whoever has the key is anybody; a bundle blamed for a name with an escape."""
    signers = tmp_path / "pattern"
    signers.write_text("# mine\n" + keys[2].read_text().replace("alice@site", name))
    with pytest.raises(BadInput, match=words) as told:
        bundle.verify(sealed, signers)
    assert (told.value.file, told.value.line) == (signers, 2)


def test_verify_says_what_it_is_of(sealed, keys, shakedown):
    """Catches: a signature believed without run, date, plan and the gates that somebody chose."""
    status, out, _ = shakedown("verify", sealed, "--signers", keys[2])
    first, second, *rest = out.splitlines()
    assert status == 0 and "not checked without --order: whose outputs these are" in first
    digest = hashlib.sha256((sealed / "plan.json").read_bytes()).hexdigest()
    assert second == f"run {sealed.name} of lab, planned 2026-11-20T13:28:49Z, plan SHA-256 {digest}"
    assert not any("lab-mpi-pingpong" in line for line in rest)
    with edited(sealed / "plan.json") as plan:
        plan["references"]["lab-mpi-pingpong"]["limit"] = 0.00005
    for name in ("SHA256SUMS", "SHA256SUMS.sig"):
        (sealed / name).unlink()
    write_verdict(sealed, judge_folder(sealed))
    resign(sealed, keys[0])
    out = shakedown("verify", sealed, "--signers", keys[2])[1]
    assert "gate of its own: lab-mpi-pingpong: gate " in out


def test_what_is_judged_is_what_was_hashed(sealed, keys, monkeypatch):
    """Catches: a bundle's owner who shows honest bytes to who hashes them, and better ones to who judges."""
    first = next(path for path in sorted((sealed / "raw").rglob("*.txt")) if path.stat().st_size)
    honest, judge = bundle.verify(sealed, keys[2]), bundle.judge_folder

    def swapped(folder: Path):
        for name in ("results.jsonl", "plan.json", str(first.relative_to(sealed))):
            (sealed / name).write_text("others, for who reads it again")
        return judge(folder)

    monkeypatch.setattr(bundle, "judge_folder", swapped)
    assert honest.authentic and bundle.verify(sealed, keys[2]) == honest
    assert not bundle.verify(sealed, keys[2]).authentic


def test_a_refusal_names_the_bundle_s_own_file(sealed, keys):
    """Catches: a damaged bundle of which the reader is told the name of a copy that is gone."""
    (sealed / "plan.json").write_text("{")
    (sealed / "SHA256SUMS").unlink()
    resign(sealed, keys[0])
    with pytest.raises(BadInput) as told:
        bundle.verify(sealed, keys[2])
    assert told.value.file == sealed / "plan.json"
