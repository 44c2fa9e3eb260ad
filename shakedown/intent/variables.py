"""Misspelt variables of group_vars and host_vars.

Ansible takes any name, so `slurm_mange: true` would silently leave a default in force. A site may have
variables of its own; only one that is nearly the name of a known one is refused, and one that has moved.

    python -m shakedown.intent.variables NAME...

The playbooks give it the variables that a host has, those of the command line too. Exit status 0, or 2 with
one line on stderr that names the new key.
"""

import difflib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from shakedown.intent.places import group_and_host_files, key_lines, refuse_bombs, variable_files
from shakedown.records.reading import BadInput

# Variables that stand elsewhere now: an old one would be passed over without a word.
MOVED = {
    "slurm_partition": "slurm: {partition: ...}",
    "slurm_account": "slurm: {account: ...}",
    "slurm_qos": "slurm: {qos: ...}",
    "slurm_reservation": "slurm: {reservation: ...}",
    "slurm_max_time": "slurm: {max_job_time: ...}",
    "slurm_manage": "manage: {slurm: ...}",
    "run_as": "slurm: {run_as: ...}",
    "nccl_tests_path": "software.nccl_tests: {from: {path: FOLDER}}",
    "nccl_tests_module": "software.nccl_tests: {from: {module: NAME/VERSION}}",
    "nccl_tests_spack": "software.nccl_tests: {from: {spack: SPEC}}",
    "nccl_tests_prefix": "software.nccl_tests: {from: {container: IMAGE}}",
    "nccl_tests_libraries": "software.nccl_tests: {libraries: [FOLDER]}",
    "nccl_tests_places": "software.nccl_tests: {from: {path: FOLDER}}",
}
# As alike as this, a name is taken for a slip of the keyboard (difflib: 1 is the same).
_ALIKE = 0.85
_MOVED = re.compile("|".join(map(re.escape, MOVED)).encode())
_HOUSE = Path(__file__).resolve().parents[2]
# What planning reads (READ in inventory_values.py, which imports Ansible and so cannot be imported here).
INTENT = frozenset(
    {
        "fabric",
        "acceptance",
        "fabric_nics",
        "tcp_fabrics",
        "tcp_nics",
        "gpus",
        "mgmt_ip",
        "roce_switch_nos",
        "leaf_ports",
        "roce_switch_cable_lengths_m",
        "roce_switch_sonic_dynamic_buffers",
        "waivers",
        "absent_nodes",
        "ordered",
        "slurm",
        "manage",
        "software",
        "shared_stage_path",
        "shared_code_path",
    }
)


def check_names(inventory: Path, house: Path = _HOUSE) -> None:
    """Refuse a variable that is nearly the name of a known one, or one that stands elsewhere now.

    Args:
        inventory: the inventory's folder or file.
        house: the folder that holds `roles` and `playbooks`; where they are absent, less is known.

    Raises BadInput: naming file, line and the nearest name.
    """
    refuse_bombs(inventory)
    used = set(_used(inventory))
    _refuse_moved(inventory)
    odd = [
        (file, line, str(at[0]))
        for file in group_and_host_files(inventory)
        for at, line in key_lines(file)
        if len(at) == 1 and not _free(str(at[0])) and at[0] not in INTENT and at[0] not in used
    ]
    if not odd:
        return
    known = {*INTENT, *_known(house), *MOVED}
    for file, line, name in odd:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
        if near:
            use = f"write {MOVED[near[0]]}" if near[0] in MOVED else f"use {near[0]}"
            raise BadInput(
                f"variable {name[:80]!r} is not known",
                fix=f"{use}, or another name if it is the site's own",
                file=file,
                line=line,
            )


def _refuse_moved(inventory: Path) -> None:
    """Refuse a key that has moved, in group_vars, in host_vars or beside a host. Raises BadInput."""
    for file in variable_files(inventory):
        # A large site's inventory has a megabyte of hosts; composing it for the lines of keys takes seconds.
        if not _MOVED.search(file.read_bytes()):
            continue
        for at, line in key_lines(file):
            name = str(at[-1]) if at else ""
            # Further in, a site's own mapping may have keys of any name; a host's variables stand below it.
            beside_a_host = len(at) >= 3 and at[-3] == "hosts"
            of_a_group = len(at) >= 2 and at[-2] == "vars"
            if name in MOVED and (len(at) == 1 or beside_a_host or of_a_group):
                raise BadInput(f"{name} has moved", fix=f"write {MOVED[name]}", file=file, line=line)


def _free(name: str) -> bool:
    return name.startswith(("ansible_", "_"))


_OPEN, _CLOSE = re.compile(r"\{[{%]"), re.compile(r"[}%]\}")


def _used(inventory: Path) -> Iterator[str]:
    """Yield every word inside a template of this inventory."""
    for file in variable_files(inventory):
        text = file.read_text(encoding="utf-8", errors="replace")
        at = 0
        # Two searches and not one expression: that would read the rest of the file from each `{{` in it.
        while (begin := _OPEN.search(text, at)) and (end := _CLOSE.search(text, begin.end())):
            yield from re.findall(r"[A-Za-z_]\w*", text[begin.start() : end.end()])
            at = end.end()


def _known(house: Path) -> Iterator[str]:
    """Yield the variables of roles (options, defaults, vars) and playbooks (vars)."""
    for specs in house.glob("roles/*/meta/argument_specs.yml"):
        for at, _ in key_lines(specs):
            if len(at) == 4 and at[2] == "options":
                yield str(at[3])
    for folder in ("defaults", "vars"):
        yield from _names(house.glob(f"roles/*/{folder}/*.yml"))
    for playbook in house.glob("playbooks/*.yml"):
        for at, _ in key_lines(playbook):
            if len(at) > 1 and at[-2] == "vars":
                yield str(at[-1])
    for file in (*house.glob("playbooks/**/*.yml"), *house.glob("roles/*/*/*.yml")):
        yield from re.findall(r"(?<![\w.'\"])([a-z]\w+) \| default\(", file.read_text(encoding="utf-8"))


def _names(files: Iterable[Path]) -> Iterator[str]:
    for file in files:
        for at, _ in key_lines(file):
            if len(at) == 1:
                yield str(at[0])


def main(names: Iterable[str]) -> int:
    """Print the old ones among variables; return the exit status."""
    old = [f"{name} has moved: write {MOVED[name]}" for name in names if name in MOVED]
    if old:
        print("; ".join(old), file=sys.stderr)
    return 2 if old else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
