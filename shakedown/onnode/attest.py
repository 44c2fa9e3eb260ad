"""Have this node's outputs of a job signed with its SSH host key, before they leave it.

    srun --ntasks-per-node=1 python -m shakedown.onnode.attest FOLDER

The digests of this node's files go into FOLDER/signed.NODE.json, and what the node's own signing service made
of that list into FOLDER/signed.NODE.link.json. SHAKEDOWN_ORDER is the digest of the order. A node that cannot
sign says why on standard error; `shakedown verify --order` then names its outputs as unsigned.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from shakedown.onnode.counters import node_name, unwritable
from shakedown.onnode.journal import NONCE
from shakedown.run.ownership import LINK, MANIFEST, journals_of, writers
from shakedown.run.redact import redact_bytes
from shakedown.run.signing import SOCKET, ask

ORDER = "SHAKEDOWN_ORDER"  # the environment variable that jobs of an order have, beside NONCE


def manifest(folder: Path, node: str, nodes: list[str], *, first: bool) -> dict[str, Any]:
    """Return the list of this node's files with their digests, after secrets are gone from them.

    `first`: it also vouches for what no other node's name is on.
    """
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and not entry.is_symlink())
    mine = {node, ""} if first else {node}
    owner = writers(names, nodes, journals_of(folder, nodes if first else [node]))
    files = {}
    for name in (name for name, writer in owner.items() if writer in mine):
        content = (folder / name).read_bytes()
        clean = redact_bytes(content)
        if clean != content:  # else it would be done later, and be no longer what was signed
            (folder / f"{name}.partial").write_bytes(clean)
            (folder / f"{name}.partial").replace(folder / name)
        files[name] = hashlib.sha256(clean).hexdigest()
    return {
        "schema": 1,
        "node": node,
        "order": os.environ.get(ORDER, ""),
        "nonce": os.environ.get(NONCE, ""),
        "folder": folder.name,
        "job": os.environ.get("SLURM_JOB_ID", ""),
        "files": files,
    }


def main(argv: list[str], path: str = SOCKET) -> int:
    """Sign this node's outputs; the exit status is 1 where that could not be done."""
    if len(argv) != 1:
        print("usage: python -m shakedown.onnode.attest FOLDER", file=sys.stderr)
        return 2
    folder, node, order = Path(argv[0]), node_name(), os.environ.get(ORDER, "")
    try:
        nodes = (folder / "nodes.txt").read_text(encoding="ascii").split()
        first = os.environ.get("SLURM_PROCID", "0") == "0"
        text = json.dumps(manifest(folder, node, nodes, first=first), indent=1) + "\n"
        _write(folder / MANIFEST.format(node=node), text)
    except OSError as error:
        return unwritable(node, folder, error)
    try:
        signed = ask(order + hashlib.sha256(text.encode()).hexdigest(), path)
    except (OSError, ValueError) as error:
        print(f"{node}: its outputs are not signed: {path}: {error}", file=sys.stderr)
        return 1
    _write(folder / LINK.format(node=node), json.dumps({"schema": 1, **signed}, indent=1) + "\n")
    return 0


def _write(path: Path, text: str) -> None:
    aside = path.with_suffix(".partial")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
