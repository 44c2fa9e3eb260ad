"""A comparison of sweeps as text and as JSON; the page shows the same cells."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from shakedown.daytwo.sweeps.claims import Claim
from shakedown.daytwo.sweeps.pairs import Extreme, Pairing, PairRow, Ratio, SweepComparison, Value
from shakedown.report import text
from shakedown.statistics.robust import smallest_p

_MOST_CHANGES = 20
_SIGNIFICANT = 0.05


def notes(found: SweepComparison) -> list[str]:
    """Return what a reader must know before the numbers."""
    said = [
        f"Baseline {found.sides[0].name}. Ratios are of medians; the spread runs between the extremes of all "
        f"repeats of both sides. Closer to 1 than {found.noise_floor:.1%} reads as no difference."
    ]
    for tool, few in _fewest(found).items():
        p = smallest_p(few, few)
        spread = (
            "nothing is known of the spread"
            if few < 2
            else f"no rank test can give less than p = {p:.2g}"
            if p > _SIGNIFICANT
            else "readings describe"
        )
        said.append(f"Ratios are no verdict. {tool}: with {text.counted(few, 'sample')} a side {spread}.")
    return said


def _fewest(found: SweepComparison) -> dict[str, int]:
    """Return the fewest samples of any number, by tool."""
    samples: dict[str, int] = {}
    for pairing in found.pairings:
        tool = pairing.combination.tool
        counts = [value.samples for row in pairing.rows for value in row.time_us if value]
        samples[tool] = min([*counts, samples.get(tool, counts[0])])
    return samples


def changes(found: SweepComparison) -> list[str]:
    """Return what the inventories differ in; a long list is cut and says so."""
    more = len(found.changes) - _MOST_CHANGES
    return [*found.changes[:_MOST_CHANGES], *([f"{more} more: --json lists all"] if more > 0 else [])]


def side_notes(found: SweepComparison) -> list[str]:
    """Return what was noticed while the sides were read."""
    return [f"{side.name}: {note}" for side in found.sides for note in side.notes]


def value(cell: Value | None) -> str:
    """Return a median."""
    return text.number(cell.median if cell else None)


def ratio(cell: Ratio | None) -> str:
    """Return a ratio as a multiple of the baseline."""
    return f"{cell.value:.3f}" if cell else "–"


def spread(cell: Ratio | None) -> str:
    """Return a ratio's least and most."""
    if cell is None or cell.least is None or cell.most is None:
        return "–"
    return f"{cell.least:.3f}–{cell.most:.3f}"


def header(found: SweepComparison) -> list[str]:
    """Return the headings of a table of sizes."""
    base, *others = [side.name for side in found.sides]
    titles = ["size", *(f"{side.name} µs" for side in found.sides)]
    titles += [f"{side.name} GB/s" for side in found.sides]
    for other in others:
        over = f"{other}/{base}"
        titles += [f"time {over}", "spread", "time reads", f"busbw {over}"]
    return titles


def cells(row: PairRow) -> list[str]:
    """Return a size's cells, in the order of the headings."""
    shown = [text.size(row.size_bytes), *map(value, row.time_us), *map(value, row.busbw_gb_per_s)]
    for time, busbw in zip(row.time_ratio, row.busbw_ratio, strict=True):
        shown += [ratio(time), spread(time), time.reading if time else "–", ratio(busbw)]
    return shown


def ends(pair: tuple[Extreme, Extreme] | None) -> str:
    """Return `0.326 (4 B) to 0.732 (512 KiB)`."""
    if pair is None:
        return "–"
    least, most = pair
    if least == most:
        return f"{least.ratio:.3f} ({text.size(least.size_bytes)})"
    return " to ".join(f"{end.ratio:.3f} ({text.size(end.size_bytes)})" for end in pair)


def overall(found: SweepComparison) -> Iterator[str]:
    """Yield one sentence a tool and side: least and most of all operations together."""
    base = found.sides[0].name
    for tool in dict.fromkeys(pairing.combination.tool for pairing in found.pairings):
        mine = [pairing for pairing in found.pairings if pairing.combination.tool == tool]
        for number, side in enumerate(found.sides[1:]):
            parts = []
            for metric in ("time", "busbw"):
                pairs = [pair for p in mine if (pair := getattr(p.extremes[number], metric))]
                if pairs:
                    least = min(pair[0].ratio for pair in pairs)
                    most = max(pair[1].ratio for pair in pairs)
                    where = "small messages" if metric == "time" else "large ones"
                    parts.append(f"{metric} of {where} {least:.3g} to {most:.3g} times {base}'s")
            if parts:
                yield f"{tool}, {side.name}: {', '.join(parts)}"


def where(pairing: Pairing) -> str:
    """Name a pairing, with its nodes where they are the same on all sides."""
    same = len(set(pairing.nodes)) == 1
    return f"{pairing.combination}" + (f" on {text.node_list(pairing.nodes[0])}" if same else "")


def draws(found: SweepComparison) -> list[tuple[str, list[str]]]:
    """Return what the GPUs drew over each operation, by side; nothing where no side sampled it."""
    return [
        (
            where(pairing),
            [
                f"{text.number(d.power_w)} W, {text.number(d.energy_j)} J, {text.number(d.hottest_c)} °C"
                if d
                else "–"
                for d in pairing.draws
            ],
        )
        for pairing in found.pairings
        if any(pairing.draws)
    ]


def claim_cells(claim: Claim) -> list[str]:
    """Return a claim's outcome, name, what it is about, and measured, wanted and published value."""
    side = "at least" if claim.gate <= claim.published else "at most"
    return [
        claim.outcome.value,
        claim.id,
        claim.what,
        "–" if claim.value is None else text.number(claim.value),
        f"{side} {text.number(claim.gate)}",
        text.number(claim.published),
        "" if claim.required else "shown only",
    ]


def judgement(claims: Sequence[Claim], unjudged: str) -> str:
    """Return one sentence about all claims, or why there are none."""
    if not claims:
        return unjudged
    deciding = [claim for claim in claims if claim.required]
    held = sum(claim.outcome == "PASS" for claim in deciding)
    first = next((c for c in deciding if c.outcome == "FAIL"), None) or next(
        (c for c in deciding if c.outcome != "PASS"), None
    )
    said = f"{held} of {len(deciding)} published claims hold"
    return f"{said}; {first.outcome} {first.id}: {first.reason}" if first else said


def lines(found: SweepComparison, claims: Sequence[Claim] = (), unjudged: str = "") -> Iterator[str]:
    """Yield the comparison as text: claims, what differs, what is missing, the ends, then every size."""
    yield from overall(found)
    if said := judgement(claims, unjudged):
        yield said
    for claim in claims:
        outcome, name, what, measured, wanted, published, shown = claim_cells(claim)
        line = f"{outcome:<12}  {name}: {what} {measured} {claim.unit}, {wanted}; published {published}"
        why = "" if claim.outcome in ("PASS", "FAIL") else f": {claim.reason}"
        yield line + (f" ({shown})" if shown else "") + why
    yield from notes(found)
    yield ""
    for fact in found.differing:
        told = "; ".join(f"{s.name}: {v}" for s, v in zip(found.sides, fact.values, strict=True))
        yield f"differs  {fact.fact}: {told}" + (f" ({' | '.join(fact.sweeps)})" if fact.sweeps else "")
    yield from (f"differs  {change}" for change in changes(found))
    yield from (f"missing  {what}" for what in found.missing)
    yield from (f"note     {note}" for note in [*found.unknown, *side_notes(found)])
    drawn = dict(draws(found))
    for pairing in found.pairings:
        yield ""
        yield where(pairing)
        if draw_of := drawn.get(where(pairing)):
            told = "; ".join(f"{s.name}: {draw}" for s, draw in zip(found.sides, draw_of, strict=True))
            yield f"  all GPUs, mean power, energy, hottest: {told}"
        limit = text.size(pairing.short_below_bytes)
        for side, extremes in zip(found.sides[1:], pairing.extremes, strict=True):
            over = f"{side.name}/{found.sides[0].name}"
            if extremes.time:
                yield f"  time {over} below {limit}: {ends(extremes.time)}"
            if extremes.busbw:
                yield f"  busbw {over} from {limit}: {ends(extremes.busbw)}"
        yield from _table([header(found), *(cells(row) for row in pairing.rows)])


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))


def document(found: SweepComparison, claims: Sequence[Claim] = (), unjudged: str = "") -> dict[str, Any]:
    """Return what `--json` prints. Times are in us, busbw in GB/s (10^9 B/s), ratios over the baseline."""
    names = [side.name for side in found.sides]
    return {
        "schema": 1,
        "baseline": names[0],
        "noise_floor": found.noise_floor,
        "sides": [
            {"name": s.name, "run": s.run, "system": s.system, "created": s.created, "notes": list(s.notes)}
            for s in found.sides
        ],
        "differing": [
            {"fact": d.fact, "values": dict(zip(names, d.values, strict=True)), "sweeps": list(d.sweeps)}
            for d in found.differing
        ],
        "changes": list(found.changes),
        "claims": [asdict(claim) for claim in claims],
        "unjudged": unjudged,
        "unknown": list(found.unknown),
        "missing": list(found.missing),
        "sweeps": [_sweep(pairing, names) for pairing in found.pairings],
    }


def _sweep(pairing: Pairing, names: list[str]) -> dict[str, Any]:
    def by(keys: list[str], values: tuple[Any, ...]) -> dict[str, Any]:
        return {key: asdict(v) if v is not None else None for key, v in zip(keys, values, strict=True)}

    return {
        **asdict(pairing.combination),
        "node_names": dict(zip(names, map(list, pairing.nodes), strict=True)),
        "short_below_bytes": pairing.short_below_bytes,
        "gpus": by(names, pairing.draws),
        "rows": [
            {
                "size_bytes": row.size_bytes,
                "time_us": by(names, row.time_us),
                "busbw_gb_per_s": by(names, row.busbw_gb_per_s),
                "time_ratio": by(names[1:], row.time_ratio),
                "busbw_ratio": by(names[1:], row.busbw_ratio),
            }
            for row in pairing.rows
        ],
        "extremes": by(names[1:], pairing.extremes),
    }
