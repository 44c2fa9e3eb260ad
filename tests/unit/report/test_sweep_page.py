"""The page and the picture of a comparison of sweeps: whole, offline, inert."""

import math
import re

import pytest
from matplotlib.figure import Figure

from shakedown.daytwo.sweeps import page as sweep_page
from shakedown.daytwo.sweeps import text as sweep_text
from shakedown.daytwo.sweeps.pairs import (
    Combination,
    OperationSweep,
    Repeats,
    SweepComparison,
    SweepSide,
    compare_sweeps,
)
from shakedown.report import charts

HOSTILE = "<script>alert(1)</script>&\"'$x$\u202e"
SIZES = (8, 1 << 16, 1 << 20, 1 << 30)


def comparison(name: str = "B", operations: int = 3, nodes: str = "n1") -> SweepComparison:
    """Two sides; B is as fast at 8 B and twenty times slower at 1 GiB."""

    def sweeps(factor: float) -> tuple[OperationSweep, ...]:
        return tuple(
            OperationSweep(
                Combination("nccl-tests", f"operation{number}", "float", 1, "srun"),
                (nodes,),
                1 << 20,
                {
                    size: Repeats((t := 10.0 * f, t * 1.01, t * 1.02), (size / t / 1e3,) * 3)
                    for size, f in zip(SIZES, (1, 1 + factor, 2 + 4 * factor, 1000 * factor + 2), strict=True)
                },
                {"GPU": f"{nodes} {factor}"},
                {"NCCL_IB_HCA": f"{nodes}{factor}"},
            )
            for number in range(operations)
        )

    sides = [
        SweepSide("A", nodes, "site", "then", sweeps(1)),
        SweepSide(name, nodes, nodes, "later", sweeps(20), None, (nodes,)),
    ]
    return compare_sweeps(sides)


@pytest.fixture(scope="module")
def page() -> str:
    """The page of three operations."""
    return sweep_page.page(comparison())


def test_six_curves_for_three_operations(page):
    """Catches: an operation without its latency or without its bandwidth, a side that is not drawn."""
    titles = re.findall(r"<figcaption[^>]*><b>([^<]*)</b>", page)
    assert titles == [
        f"operation{number} float, 1 node, srun on n1: {what}"
        for number in range(3)
        for what in ("time", "bandwidth")
    ]
    assert page.count('<svg class="chart"') == 6
    for svg in re.findall(r'<svg class="chart".*?</svg>', page, flags=re.DOTALL):
        drawn = set(re.findall(r"var\((--series-\d)\)", svg))
        assert drawn == {"--series-1", "--series-2"}


def test_it_needs_nothing_else(page):
    """Catches: a script, a font or picture from elsewhere, a colour that no style sheet sets."""
    assert "<script" not in page and "src=" not in page
    assert {url for url in re.findall(r"https?://[^\"'\s<)]*", page) if "w3.org" not in url} == set()
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert "#0102" not in page
    assert set(re.findall(r"var\((--[a-z0-9-]+)\)", page)) <= set(re.findall(r"(--[a-z0-9-]+):", page))


def test_every_number_is_on_the_page(page):
    """Catches: the page and the table in the terminal telling two stories."""
    found = comparison()
    for pairing in found.pairings:
        for row in pairing.rows:
            for cell in sweep_text.cells(row):
                assert f">{cell}</t" in page
    for line in (*sweep_text.overall(found), *sweep_text.notes(found)):
        assert line.replace("'", "&#39;") in page


@pytest.mark.slow
def test_names_are_only_text():
    """Catches: a side, node, GPU, variable or note that becomes markup, mathematics or reversed text."""
    found = comparison(HOSTILE, 1, HOSTILE)
    page = sweep_page.page(found)
    assert "<script" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "$x$" in page
    assert page.count("<h2") == sweep_page.page(comparison(operations=1)).count("<h2")


def test_the_ratio_axis_holds_a_twentyfold_difference(page):
    """Catches: a lower axis that cuts off at 400 %, a limit for references, or that names no baseline."""
    assert "% of A" in page and "% of ref." not in page
    axes = Figure().subplots()
    charts._against_reference(axes, sweep_page.curves(comparison())[0])
    low, high = axes.get_ylim()
    assert low < 100 and high > 1996 and axes.get_yscale() == "log"
    assert [round(float(y)) for y in axes.lines[1].get_ydata()] == [100, 1050, 1367, 1996]


def test_a_long_comparison_says_what_it_leaves_out(monkeypatch):
    """Catches: sweeps that are missing from the page without a word."""
    monkeypatch.setattr(charts, "draw", lambda chart: "")
    page = sweep_page.page(comparison(operations=50))
    assert page.count('<figure class="plot"') == 2 * sweep_page.MOST_DRAWN
    assert "38 further sweeps not drawn" in page
    assert "2 further sweeps not printed" in page


def test_gaps_are_gaps(monkeypatch):
    """Catches: a line that bridges a size which one side did not measure."""
    found = comparison(operations=1)
    points = dict(found.sides[1].sweeps[0].points)
    points[1 << 16] = "9 wrong elements"
    sweep = found.sides[1].sweeps[0]
    holed = OperationSweep(
        sweep.combination, sweep.nodes, sweep.short_below_bytes, points, sweep.facts, sweep.variables
    )
    time, _ = sweep_page.curves(compare_sweeps([found.sides[0], SweepSide("B", "r", "s", "t", (holed,))]))
    assert time.curves[1].x == tuple(float(size) for size in SIZES)
    assert math.isnan(time.curves[1].y[1])
    assert [x for x, _, _ in time.curves[1].spread] == [8.0, float(1 << 20), float(1 << 30)]


def test_a_side_of_fewer_sizes_is_a_line():
    """Catches: a sweep of every other size drawn as loose points beside one of all sizes."""
    found = comparison(operations=1)
    sweep = found.sides[1].sweeps[0]
    points = {size: point for size, point in sweep.points.items() if size != 1 << 16}
    coarse = OperationSweep(
        sweep.combination, sweep.nodes, sweep.short_below_bytes, points, sweep.facts, sweep.variables
    )
    for curve in sweep_page.curves(
        compare_sweeps([found.sides[0], SweepSide("B", "r", "s", "t", (coarse,))])
    ):
        assert [len(line.x) for line in curve.curves] == [4, 3]
        assert not any(math.isnan(y) for line in curve.curves for y in line.y)
