"""Programs of compute nodes need nothing but Python: nothing may be installed there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Programs of the submit host and of the controller, where the package is installed with what it needs.
ELSEWHERE = {
    "shakedown.benchmarks.software.beforehand",
    "shakedown.evidence.able_to_sign",
    "shakedown.evidence.orders",
    "shakedown.intent.variables",
    "shakedown.run.lock",
    "shakedown.slurm.preflight",
    "shakedown.slurm.run_control",
    "shakedown.slurm.stage",
}
_STARTED = re.compile(
    r'(?:-m["\']?,?\s+|own_python\(\),\s*|own_module\(\s*|by_module\(\s*)["\']?(shakedown(?:\.[a-z_]+)+)'
)
_TOLD = re.compile(r"[Ss]tandard\s+library\s+only")


def on_nodes() -> list[str]:
    """Modules that something starts with `python -m` on a node, and those that say what they may need."""
    found = set()
    for folder in ("shakedown", "reframe_tests", "roles", "playbooks"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".yml", ".j2", ".sh") and "__pycache__" not in path.parts:
                text = path.read_text(encoding="utf-8")
                found.update(_STARTED.findall(text))
                if folder == "shakedown" and path.suffix == ".py" and _TOLD.search(text):
                    found.add(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return sorted(found - ELSEWHERE)


def test_the_programs_are_found():
    """Catches: a search that finds nothing, and so holds nothing."""
    assert {"shakedown.benchmarks.perftest.mesh.driver", "shakedown.onnode.gpus"} <= set(on_nodes())
    assert len(on_nodes()) > 30


@pytest.mark.parametrize("module", on_nodes())
def test_a_program_of_a_node_needs_the_standard_library_alone(module):
    """Catches: a file merged with one that imports pydantic: its job would end on every node at once."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {module}"
    python = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run([python, "-S", "-E", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr.splitlines()[-1]
