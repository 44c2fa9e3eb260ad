"""What recorded runs say of the simulator's noise: `research/fit_noise.py`.

Of tests/runs, those of a healthy machine in which one size was measured three times: nccl-tests on 4 x H200
in one node, over NVLink. No mesh over NICs was recorded, so they do not tell what rounds, leaves and NICs do.
"""

from __future__ import annotations

import math
import re
import tarfile
from collections import defaultdict
from pathlib import Path

import numpy as np

from shakedown.benchmarks.nccl.output import parse_nccl
from shakedown.statistics.robust import MAD_TO_SIGMA, resolution

RUNS = Path(__file__).parents[1] / "tests/runs"
HEALTHY = ("h200x4_nccl", "h200x4_nccl_healthy", "h200x4_nccl_launchers", "h200x4_nccl_mpirun")
# Smaller ones take a few hundred microseconds, and are no rate of a link.
LEAST_BYTES = 2**27
# Beyond so many standard deviations a repetition is odd.
ODD = 5.0
_OUTPUT = re.compile(r"(?P<of>.*/nccl_\w+)\.r\d+\.txt")


def main() -> None:
    """Print what each run gives, and all of them."""
    print("run | cells | repetitions | cv | odd | cv of the odd | largest | step, GB/s")
    every: list[np.ndarray] = []
    steps: list[float] = []
    for name in HEALTHY:
        cells = repetitions(RUNS / name / "run.tar.xz")
        logs = [np.log(values) for values in cells if len(values) >= 3]
        step = resolution([value for values in cells for value in values])
        steps.append(step)
        every += logs
        print(_told(name, logs, step))
    print(_told("all", every, min(steps)))


def repetitions(archive: Path) -> list[list[float]]:
    """Return the bus bandwidths of every job, operation and size, one of each repetition."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    with tarfile.open(archive) as tar:
        for member in sorted(tar.getmembers(), key=lambda m: m.name):
            told = _OUTPUT.fullmatch(member.name)
            content = tar.extractfile(member) if told else None
            if told is None or content is None:
                continue
            text = content.read().decode()
            if not text.strip():  # a launcher that did not start it
                continue
            for row in parse_nccl(text, file=member.name).rows:
                if row.size_bytes >= LEAST_BYTES:
                    found[told["of"], row.size_bytes].append(row.in_place.busbw_gb_per_s)
    return list(found.values())


def _told(name: str, logs: list[np.ndarray], step: float) -> str:
    """Return a line of the table.

    The deviations from the cell's own mean, made as large as those from the true one. The standard deviation
    is that of the bulk, by the MAD; what lies far beyond it is contamination.
    """
    away = np.concatenate([(x - x.mean()) * math.sqrt(len(x) / (len(x) - 1)) for x in logs])
    cv = float(np.median(np.abs(away))) / MAD_TO_SIGMA
    odd = away[np.abs(away) > ODD * cv]
    of_odd = f"{math.sqrt(float((odd**2).mean())):.2%}" if odd.size else "-"
    return (
        f"{name} | {len(logs)} | {len(away)} | {cv:.3%} | {odd.size / len(away):.1%} | {of_odd} "
        f"| {np.abs(away).max():.2%} | {step:g}"
    )


if __name__ == "__main__":
    main()
