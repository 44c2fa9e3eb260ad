"""What a node noted as it wrote it, and what it does not sign: changed on the share before its job's end."""

# ruff: noqa: D103  (a change's name says what it is)

import errno
import json
import os
from pathlib import Path

import pytest

from shakedown.evidence import attest
from shakedown.onnode import counters, gpus, noted
from shakedown.onnode.journal import Clock, Journal
from tests.kit.cases import cases


@pytest.fixture
def job(tmp_path, monkeypatch) -> Path:
    """Return the folder of a job of two nodes, of which this is n1, under an order."""
    folder = tmp_path / "share/fabric.x.a1"
    folder.mkdir(parents=True)
    (folder / "nodes.txt").write_text("n1\nn2\n")
    (tmp_path / "disk" / str(os.getuid())).mkdir(mode=0o700, parents=True)
    monkeypatch.setattr(noted, "PLACE", tmp_path / "disk")
    monkeypatch.setattr(attest, "sign", lambda *_: {"link": "{}", "signature": ""})
    for name, value in {noted.ORDER: "a" * 64, "SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7"}.items():
        monkeypatch.setenv(name, value)
    return folder


def write(job: Path, name: str, content: str, node: str | None = "n1") -> None:
    """Write an output and its record."""
    (job / name).write_text(content)
    Journal(job, node).add("t", "t", name, ["n1"], Clock(), 0, None)


def signed(job: Path) -> dict:
    """Sign, and return the node's list and exit status."""
    status = attest.main([str(job)])
    return {"status": status, **json.loads((job / "signed.n1.json").read_text())}


def test_what_was_left_alone_is_signed_and_the_notes_go(job):
    """Catches: an honest output that is refused, notes that stay on the node's disk for ever."""
    write(job, "one.n1.txt", "1\n")
    write(job, "all.txt", "2\n", node=None)
    write(job, "all.txt", "written again\n", node=None)
    found = signed(job)
    assert found["status"] == 0 and "changed" not in found
    names = ["all.txt", "nodes.txt", "one.n1.txt", "outputs.jsonl", "outputs.n1.jsonl"]
    assert sorted(found["files"]) == names
    assert not any((noted.PLACE / str(os.getuid())).iterdir())


def replaced(job: Path) -> None:
    (job / "one.n1.txt").write_text("9\n")


def removed(job: Path) -> None:
    (job / "one.n1.txt").unlink()


def linked(job: Path) -> None:
    (job / "one.n1.txt").rename(job / "other.n2.txt")
    (job / "one.n1.txt").symlink_to("other.n2.txt")


def claimed(job: Path) -> None:
    """Root of n2 has its own journal name the file, and alters it."""
    (job / "outputs.n2.jsonl").write_text(json.dumps({"file": "one.n1.txt"}) + "\n")
    (job / "one.n1.txt").write_text("9\n")


@pytest.mark.parametrize("change", [replaced, removed, linked, claimed], ids=lambda c: c.__name__)
def test_an_output_changed_before_its_node_signs_is_named_and_not_signed(job, change, capsys):
    """Catches: what root of another node wrote over an output on the share, signed as this node's."""
    write(job, "one.n1.txt", "1\n")
    write(job, "two.n1.txt", "2\n")
    change(job)
    found = signed(job)
    assert found["status"] == 1 and found["changed"] == ["one.n1.txt"]
    assert "one.n1.txt" not in found["files"] and "two.n1.txt" in found["files"]
    assert "n1: not signed, because it is not what n1 wrote: one.n1.txt" in capsys.readouterr().err


@cases(
    "lines",
    lambda lines: lines[:1],
    lambda lines: [*lines, lines[0]],
    lambda lines: lines[::-1],
    lambda lines: [lines[0].replace("n1", "n9"), lines[1]],
    lambda lines: [*lines, "x"],
    ids=["dropped", "added", "in another order", "edited", "cut"],
)
def test_a_journal_is_held_line_by_line(job, lines):
    """Catches: a record dropped, added or edited on the share."""
    for name in ("one.n1.txt", "two.n1.txt"):
        write(job, name, name)
    journal = job / "outputs.n1.jsonl"
    journal.write_text("".join(lines(journal.read_text().splitlines(keepends=True))))
    assert signed(job)["changed"] == ["outputs.n1.jsonl"]


def test_counters_and_looks_at_gpus_are_noted(job, monkeypatch):
    """Catches: counters of before a test that are edited while the test runs."""
    monkeypatch.setattr(counters, "read_devices", list)
    assert counters.main(["before", str(job)]) == 0
    gpus.write(job, {"node": "n1", "when": "before"})
    names = ["counters.n1.before.json", "gpus.n1.before.json"]
    for name in names:
        (job / name).write_text("{}")
    assert signed(job)["changed"] == names


def test_without_an_order_nothing_is_noted(job, monkeypatch):
    """Catches: a read of each output, and files on each node, of runs that nobody signs."""
    monkeypatch.delenv(noted.ORDER)
    write(job, "one.n1.txt", "1\n")
    assert not any((noted.PLACE / str(os.getuid())).iterdir())


def test_a_folder_of_somebody_else_holds_no_notes(job, monkeypatch, capsys):
    """Catches: notes in a folder that another user can change; a job without them of which nobody hears; each
    output of a job that waits for a service which does not answer."""
    mine = noted.PLACE / str(os.getuid())
    mine.chmod(0o777)
    asked = []
    monkeypatch.setattr(noted.service, "signer", lambda: True)
    monkeypatch.setattr(noted.service, "sign", lambda request, **_: asked.append(request))
    noted._asked.cache_clear()
    write(job, "one.n1.txt", "1\n")
    assert asked == ["a" * 64 + "?" * 64] and not any(mine.iterdir())
    assert "could not be noted" in capsys.readouterr().err
    mine.rmdir()
    (job / "outputs.n1.jsonl").unlink()
    noted._asked.cache_clear()
    monkeypatch.setattr(noted.service, "sign", lambda *_, **__: mine.mkdir(mode=0o700))
    write(job, "one.n1.txt", "1\n")
    (job / "one.n1.txt").write_text("changed\n")
    assert not capsys.readouterr().err and signed(job)["changed"] == ["one.n1.txt"]
    assert not any(mine.iterdir()) and capsys.readouterr().err
    mine.rmdir()
    mine.symlink_to(job)
    assert noted._own_folder() is None
    monkeypatch.setattr(noted.service, "signer", lambda: None)
    write(job, "one.n1.txt", "1\n")
    assert not capsys.readouterr().err  # a host without the service signs nothing


def test_a_note_that_a_full_disk_cut_is_told(job, capsys):
    """Catches: a traceback at the end of a job; outputs signed as noted of which the note is lost."""
    write(job, "one.n1.txt", "1\n")
    (notes,) = (noted.PLACE / str(os.getuid())).iterdir()
    notes.write_text(notes.read_text()[:-20])
    assert attest.main([str(job)]) == 1
    assert "n1: its outputs are not signed: a note of what was written is damaged" in capsys.readouterr().err


def piped(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def grown(path: Path) -> None:
    """A terabyte that takes no room."""
    path.touch()
    os.truncate(path, 1 << 40)


def crowded(path: Path) -> None:
    path.write_text("n1\n" + "x\n" * (1 << 20))


def not_ascii(path: Path) -> None:
    path.write_bytes(b"n1\n\xff\n")


SPOILT = [
    *(("nodes.txt", how) for how in (piped, grown, crowded, not_ascii, Path.unlink)),
    *(("outputs.n2.jsonl", how) for how in (piped, grown)),
    *(("more.n1.txt", how) for how in (piped, grown)),
]


@pytest.mark.parametrize(("name", "how"), SPOILT, ids=lambda of: getattr(of, "__name__", of))
def test_what_another_nodes_root_spoilt_costs_this_ones_signature_nothing(job, capsys, name, how):
    """Catches: a job that hangs at a pipe, or ends for lack of memory: honest outputs unsigned."""
    write(job, "one.n1.txt", "1\n")
    write(job, "all.txt", "2\n", node=None)
    for theirs in ("theirs.n2.txt", "outputs.n2.jsonl"):
        (job / theirs).write_text("{}\n")
    how(job / name)
    found = signed(job)
    assert found["status"] == 0 and "changed" not in found
    names = {"all.txt", "nodes.txt", "one.n1.txt", "outputs.jsonl", "outputs.n1.jsonl"}
    assert found["files"].keys() == names - ({name} if how not in (crowded, not_ascii) else set())
    told = capsys.readouterr().err
    assert name in told if name == "nodes.txt" or (how is grown and ".n1." in name) else not told


@pytest.mark.parametrize("how", [piped, grown, lambda path: path.write_bytes(b"\n" * (60 << 20))])
@pytest.mark.parametrize("name", ["one.n1.txt", "outputs.n1.jsonl"])
def test_what_this_node_wrote_and_cannot_read_any_more_is_named(job, name, how):
    """Catches: a spoilt output that ends the signing of others, or a journal that takes 8 GB to compare."""
    write(job, "one.n1.txt", "1\n")
    write(job, "two.n1.txt", "2\n")
    how(job / name)
    found = signed(job)
    assert found["status"] == 1 and found["changed"] == [name] and "two.n1.txt" in found["files"]


@pytest.mark.parametrize("name", ["nodes.txt", "one.n1.txt", "outputs.n1.jsonl"])
def test_what_another_host_replaced_on_nfs_is_read_again_to_be_signed(job, monkeypatch, name):
    """Catches: a node whose outputs are unsigned, as its handle of a file was stale once (ESTALE)."""
    write(job, "one.n1.txt", "1\n")
    real, left = os.open, [name]

    def stale(path, *rest, **more):
        if str(path).endswith(name) and left:
            left.clear()
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", stale)
    found = signed(job)
    assert not left and found["status"] == 0 and {"nodes.txt", "one.n1.txt"} < found["files"].keys()
