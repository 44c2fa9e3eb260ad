"""How localisation holds in noise it was not made for: `research/bench_localise_odd.py FILE [options]`.

The noise of odd_noise.py, in which a healthy cluster may be and which no model of ours has, over the size's
own (CV 0.3 %, healthy NICs 0.05 % apart); no path known. Faults as in bench_localise_noise.py: a NIC sending,
receiving, both, or a node in turn. Every case's outcome is a line of FILE; a second start goes on where the
first one stopped. Columns: healthy runs in which a good part was blamed, and which ended with suspects only;
of each fault, per cent named, named first, and with a good part blamed.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from localiser_cases import SIZES, CaseScore, judge, ours, planted
from odd_noise import ODD
from shakedown.simulate.fabric import FaultKind, Simulated, build_fabric, draw_fault, measure

PARTS = (FaultKind.NIC_TX, FaultKind.NIC_RX, FaultKind.LOSSY_CABLE, FaultKind.SLOW_NODE)
FAULTS = ("none", "2%", "5%", "20%")
Key = tuple[str, str, str, int]


def case(row: str, size: str, fault: str, number: int, series: int = 0) -> Simulated:
    """Return a case: the same one whenever it is asked for."""
    shape = SIZES[size]
    rng = np.random.default_rng([2028, series, crc32(f"{row} {size} {fault}".encode()), number])
    fabric = build_fabric(shape, rng)
    faults = []
    if fault != "none":
        loss = float(fault.removesuffix("%")) / 100
        faults = [draw_fault(PARTS[number % len(PARTS)], loss, shape, fabric, rng)]
    return measure(shape, fabric, faults, rng, (ODD[row],))


def outcome(key: Key, series: int) -> dict[str, Any]:
    """Return a case's line of FILE."""
    sim = case(*key, series)
    return {"series": series, **asdict(judge(planted(sim), ours(sim), key))}


def row_of(row: str, size: str, lines: list[dict[str, Any]]) -> str:
    """Return a row of the table."""
    names = [f.name for f in fields(CaseScore)]
    outcomes = [CaseScore(**{name: line[name] for name in names}) for line in lines]
    healthy = [o for o in outcomes if o.fault == "none"]
    cells = [f"{sum(o.wrong > 0 for o in healthy)} of {len(healthy)}", str(sum(o.undecided for o in healthy))]
    for fault in FAULTS[1:]:
        mine = [o for o in outcomes if o.fault == fault]
        parts = [
            100 * sum(x) / len(mine)
            for x in zip(*((o.named, o.first, o.wrong > 0) for o in mine), strict=True)
        ]
        cells.append(" / ".join(f"{part:.0f}" for part in parts) + " %" if mine else "-")
    return " | ".join(["", f"{row} {size}", *cells, ""]).strip()


def main() -> None:
    """Measure what FILE lacks, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", default=",".join(ODD))
    parser.add_argument("--sizes", default="16x4")
    parser.add_argument("--healthy", type=int, default=300)
    parser.add_argument("--faulty", type=int, default=60)
    parser.add_argument("--series", type=int, default=0)
    args = parser.parse_args()
    lines = [json.loads(text) for text in args.file.read_text().splitlines()] if args.file.exists() else []
    done = {(x["series"], x["row"], x["size"], x["fault"], x["number"]) for x in lines}
    with args.file.open("a") as file:
        for row in args.rows.split(","):
            for size in args.sizes.split(","):
                for fault in FAULTS:
                    for number in range(args.healthy if fault == "none" else args.faulty):
                        if (args.series, row, size, fault, number) not in done:
                            lines.append(outcome((row, size, fault, number), args.series))
                            file.write(json.dumps(lines[-1]) + "\n")
                    file.flush()
                mine = [x for x in lines if (x["series"], x["row"], x["size"]) == (args.series, row, size)]
                print(row_of(row, size, mine), flush=True)


if __name__ == "__main__":
    main()
