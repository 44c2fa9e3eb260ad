"""What a power cut leaves: bytes are on disk before they have a name, and before what they replace goes."""

import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from shakedown.daytwo.history.ingest import compact, ingest
from shakedown.daytwo.history.store import write_parquet
from shakedown.records.writing import append_line, write_aside
from shakedown.run.share import Share
from tests.unit.daytwo.fleet import START, Night, names


class Disk:
    """Follows what is on disk and what is only in memory, and keeps what a power cut would spoil."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.synced: set[int] = set()  # inodes
        self.unsettled: dict[int, str] = {}  # folders with a new name that is not on disk, by inode
        self.spoilt: list[str] = []
        sync, move, unlink = os.fsync, os.replace, os.unlink

        def fsync(descriptor: int) -> None:
            sync(descriptor)
            self.synced.add(os.fstat(descriptor).st_ino)
            self.unsettled.pop(os.fstat(descriptor).st_ino, None)

        def replace(source: os.PathLike[str], target: os.PathLike[str], **at: int) -> None:
            if os.stat(source, dir_fd=at.get("src_dir_fd")).st_ino not in self.synced:
                self.spoilt.append(f"{target} was named before its bytes were on disk")
            move(source, target, **at)
            folder = os.fstat(at["dst_dir_fd"]) if "dst_dir_fd" in at else Path(target).parent.stat()
            self.unsettled[folder.st_ino] = str(target)

        def remove(path: Path, missing_ok: bool = False) -> None:
            if self.unsettled and path.exists():
                self.spoilt.append(f"{path.name} was removed before {[*self.unsettled.values()]} was on disk")
            if path.exists() or not missing_ok:
                unlink(path)

        patch.setattr(os, "fsync", fsync)
        patch.setattr(os, "replace", replace)
        patch.setattr(Path, "replace", replace)
        patch.setattr(Path, "unlink", remove)

    def assert_whole(self) -> None:
        """Fail for whatever a power cut would have spoilt, now or before."""
        assert self.spoilt == []
        assert self.unsettled == {}


@pytest.fixture
def disk(monkeypatch) -> Disk:
    """The disk under the writers of a test."""
    return Disk(monkeypatch)


def test_a_file_written_aside_stays(disk, tmp_path):
    """Catches: a verdict, order or seal that is empty after a power cut, or the old one again."""
    write_aside(tmp_path / "verdict.json", b"{}")
    Share(tmp_path).write(tmp_path / "job.json", b"{}")
    write_parquet(tmp_path / "a.parquet", pa.table({"n": [1]}))
    disk.assert_whole()


def test_an_appended_line_is_on_disk_when_the_call_returns(disk, tmp_path):
    """Catches: a job that ran and is in no chain after a power cut."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    append_line(tmp_path / "a/outputs.jsonl", b"{}")
    Share(tmp_path).append(tmp_path / "b/chain.jsonl", lambda _: b"{}")
    # The file, and its name: it was not there before.
    for path in ("a/outputs.jsonl", "b/chain.jsonl", "a", "b"):
        assert (tmp_path / path).stat().st_ino in disk.synced, path


@pytest.mark.slow
def test_a_history_loses_no_run_to_a_power_cut(disk, tmp_path):
    """Catches: runs of a month that are removed before the month that holds them is on disk."""
    store = tmp_path / "history"
    for night in (0, 1):
        run = Night(f"night{night}", nodes=names(2), night=night).write(tmp_path / f"night{night}")
        ingest(store, run, now=START + timedelta(days=2))
    disk.assert_whole()
    assert compact(store, now=START + timedelta(days=99))
    disk.assert_whole()
