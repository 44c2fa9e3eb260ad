"""How files of results may be named. Standard library only: compute nodes use this."""

from __future__ import annotations

# What file systems take (NAME_MAX of Linux, in bytes; our names are ASCII). The note of a mesh about a cell
# across rails names a node three times and two rails, so nothing less is enough.
LONGEST_FILE_NAME = 255
# A whole name, without anchors.
FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9_.,+=-]*"
