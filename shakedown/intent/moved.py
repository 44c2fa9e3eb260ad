"""Variables of an inventory that stand elsewhere now: an old one would be passed over without a word.

    python -m shakedown.intent.moved NAME...

The playbooks give it the variables that a host has, those of the command line too. Exit status 0, or 2 with
one line on stderr that names the new key.
"""

import sys
from collections.abc import Iterable

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


def main(names: Iterable[str]) -> int:
    """Print the old ones among variables; return the exit status."""
    old = [f"{name} has moved: write {MOVED[name]}" for name in names if name in MOVED]
    if old:
        print("; ".join(old), file=sys.stderr)
    return 2 if old else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
