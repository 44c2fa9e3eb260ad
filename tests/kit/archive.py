"""Archives of recorded runs, unpacked the same way by every Python that is supported.

Debian 12's own Python 3.11.2 has no `filter=` of extractall, and what newer ones do without it differs.
"""

import os
import tarfile
from pathlib import Path, PurePosixPath


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive of files and folders; return the folder. ValueError for what could leave it."""
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        for member in members:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts or not (member.isreg() or member.isdir()):
                raise ValueError(f"{archive}: {member.name} is no file or folder below it")
            member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        # Checked above; this only keeps newer Pythons from judging once more, each by rules of its own.
        tar.extraction_filter = lambda member, _folder: member
        tar.extractall(folder, members)  # noqa: S202
    return folder
