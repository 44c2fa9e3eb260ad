"""Have this node's outputs of a job signed with its SSH host key, before they leave it.

    srun --ntasks-per-node=1 python -m shakedown.evidence.attest FOLDER

The digests of this node's files go into FOLDER/signed.NODE.json. A file that is no longer what the node
noted as it wrote it (noted.py) is not signed, and named there as changed. What the node's own signing service
made of that list goes into FOLDER/signed.NODE.link.json. SHAKEDOWN_ORDER is the digest of the order. A node
that cannot sign says why on standard error; `shakedown verify --order` then names its outputs as unsigned.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from shakedown.onnode.counters import unwritable
from shakedown.onnode.journal import NONCE
from shakedown.onnode.noted import ORDER, forget, node_name, notes_of
from shakedown.run.ownership import LINK, MANIFEST, is_of_nodes, journals_of, writers
from shakedown.run.redact import redact_bytes
from shakedown.run.service import SIGNER, sign
from shakedown.run.share import Share

_LARGEST_LIST = 1 << 20  # bytes; 4,096 names have a quarter of it at most


def nodes_of(folder: Path, node: str) -> list[str]:
    """Return the nodes of a job; where root of one of them spoilt their list, those with a journal."""
    try:
        return Share(folder.parents[1]).read(folder / "nodes.txt", _LARGEST_LIST).decode("ascii").split()
    except (OSError, ValueError) as error:
        print(f"{node}: nodes.txt cannot be read: {error}", file=sys.stderr)
        journals = folder.glob("outputs.?*.jsonl")
        return [node, *(path.stem.removeprefix("outputs.") for path in journals)]


def manifest(folder: Path, node: str, nodes: list[str], *, first: bool) -> dict[str, Any]:
    """Return the list of this node's files with their digests, after secrets are gone from them.

    `first`: it also vouches for what no other node's name is on. What cannot be read is said, and left out.
    """
    share = Share(folder.parents[1])
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False))
    mine = {node, ""} if first else {node}
    journals = journals_of(folder, nodes if first else [node], share.read)
    owner, notes = writers(names, nodes, journals), notes_of(folder)
    # What this node noted it wrote, whoever claims it since.
    wrote = {name for name in (*notes.files, *notes.lines) if is_of_nodes(name)}
    files, changed = {}, sorted(wrote - owner.keys())
    for name in (name for name, writer in owner.items() if writer in mine or name in wrote):
        try:
            content = share.read(folder / name)
        except OSError as error:
            print(f"{node}: not signed, because it cannot be read: {name}: {error}", file=sys.stderr)
            changed += [name] if name in wrote else []
            continue
        if notes.differ(name, content):
            changed.append(name)
            continue
        clean = redact_bytes(content)
        if clean != content:  # else it would be done later, and be no longer what was signed
            share.write(folder / name, clean)
        files[name] = hashlib.sha256(clean).hexdigest()
    return {
        "schema": 1,
        "node": node,
        "order": os.environ.get(ORDER, ""),
        "nonce": os.environ.get(NONCE, ""),
        "folder": folder.name,
        "job": os.environ.get("SLURM_JOB_ID", ""),
        "files": files,
        **({"changed": changed} if changed else {}),
    }


def main(argv: list[str], path: str = SIGNER) -> int:
    """Sign this node's outputs; the exit status is 1 where that could not be done."""
    if len(argv) != 1:
        print("usage: python -m shakedown.evidence.attest FOLDER", file=sys.stderr)
        return 2
    folder, node, order = Path(argv[0]).absolute(), node_name(), os.environ.get(ORDER, "")
    share = Share(folder.parents[1])
    try:
        nodes = nodes_of(folder, node)
        first = os.environ.get("SLURM_PROCID", "0") == "0"
        document = manifest(folder, node, nodes, first=first)
        text = json.dumps(document, indent=1) + "\n"
        share.write(folder / MANIFEST.format(node=node), text.encode())
    except OSError as error:
        return unwritable(node, folder, error)
    except ValueError as error:
        print(f"{node}: its outputs are not signed: {error}", file=sys.stderr)
        return 1
    try:
        signed = sign(order + hashlib.sha256(text.encode()).hexdigest(), path)
    except (OSError, ValueError) as error:
        print(f"{node}: its outputs are not signed: {path}: {error}", file=sys.stderr)
        return 1
    link = json.dumps({"schema": 1, **signed}, indent=1) + "\n"
    share.write(folder / LINK.format(node=node), link.encode())
    forget(folder)
    if changed := document.get("changed"):
        print(
            f"{node}: not signed, because it is not what {node} wrote: {', '.join(changed)}", file=sys.stderr
        )
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
