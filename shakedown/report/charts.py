"""Line charts as inline SVG, drawn offline by Matplotlib and recoloured by the page's own style sheet.

Every colour is drawn as a sentinel and replaced by a CSS variable, so that one figure serves light,
dark and print. Text stays text: it is found by search and read by screen readers.
"""

import io
import math
import re
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from shakedown.report import text
from shakedown.report.sweeps import Chart, Curve

# Sentinels: colours that nothing else in the file has.
_VARIABLES = {
    "#010203": "--ink",
    "#010204": "--muted",
    "#010205": "--line",
    "#010206": "--series-1",
    "#010207": "--series-2",
    "#010208": "--series-3",
    "#010209": "--series-4",
    "#01020a": "--fail",
    "#01020b": "--reference",
    "#01020c": "--gate",
    "#01020d": "--ceiling",
    "#01020e": "--band",
}
_INK, _MUTED, _LINE, *_ = _VARIABLES
_SERIES = ("#010206", "#010207", "#010208", "#010209")
_LEGEND_COLUMNS = 4
_DECADE = 10
_SHORT_NAME = 9  # what fits beside the lower axes
_MARKERS = ("o", "s", "^", "D")
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a `$` in a name is a dollar
    "font.size": 9,
    "axes.linewidth": 0.8,
}


_STYLES: dict[str, dict[str, Any]] = {
    "reference": {"color": "#01020b", "linestyle": (0, (5, 2)), "linewidth": 1.3, "zorder": 2},
    "gate": {"color": "#01020c", "linestyle": (0, (1.5, 1.5)), "linewidth": 1.3, "zorder": 2},
    "ceiling": {"color": "#01020d", "linestyle": (0, (7, 2, 1.5, 2)), "linewidth": 1.2, "zorder": 1.8},
    "missed": {"color": "#01020a", "linestyle": "", "marker": "X", "markersize": 7, "zorder": 5},
}


def _style(curve: Curve, number: int) -> dict[str, Any]:
    if curve.role in _STYLES:
        return _STYLES[curve.role]
    color, marker = _SERIES[number % len(_SERIES)], _MARKERS[number % len(_MARKERS)]
    style = {"color": color, "marker": marker, "markersize": 3.6, "linewidth": 1.7, "zorder": 3}
    if curve.role == "worst":
        style |= {"color": "#01020a", "marker": "X", "markersize": 4.5, "linewidth": 1.4, "zorder": 4}
    return style if len(curve.x) <= 64 else style | {"marker": ""}


def draw(chart: Chart) -> Markup:
    """Return a chart as SVG markup, safe to put into the page: all text in it is escaped."""
    with mpl.rc_context({**_SETTINGS, "svg.hashsalt": chart.id}):
        figure = Figure(figsize=(6.4, height := 4.3 if chart.sizes else 3.2))
        figure.patch.set_alpha(0)
        FigureCanvasSVG(figure)
        if chart.sizes:
            upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.25))
            _curves(upper, chart)
            _log_axes(upper, chart)
            _against_reference(lower, chart)
            lower.set_xlabel(chart.x_label, color=_INK)
        else:
            upper = figure.add_subplot()
            _curves(upper, chart)
            upper.set_xlabel(chart.x_label, color=_INK)
        upper.set_ylabel(text.inert(chart.y_label), color=_INK)
        handles, labels = upper.get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="upper left",
            ncols=_LEGEND_COLUMNS,
            frameon=False,
            fontsize=8,
            labelcolor=_INK,
            columnspacing=1.4,
            handlelength=2.6,
            borderaxespad=0,
        )
        # Set by hand: Matplotlib's own layout engines double the time to draw.
        legend_rows = -(-len(labels) // _LEGEND_COLUMNS)
        top = 1 - (0.06 + 0.17 * legend_rows) / height
        figure.subplots_adjust(left=0.12, right=0.985, bottom=0.46 / height, top=top, hspace=0.14)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return Markup(_inline(out.getvalue(), chart))  # noqa: S704  (Matplotlib escapes text; attributes are ours)


def _frame(axes: Axes) -> None:
    axes.patch.set_alpha(0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_MUTED)
    axes.grid(visible=True, which="major", color=_LINE, linewidth=0.6)
    axes.tick_params(which="both", colors=_MUTED, labelcolor=_INK, labelsize=8)


def _curves(axes: Axes, chart: Chart) -> None:
    _frame(axes)
    if chart.band:
        x, low, high = zip(*chart.band, strict=True)
        axes.fill_between(x, low, high, color="#01020e", linewidth=0, label="least to most", zorder=1)
    for number, curve in enumerate(chart.curves):
        style = _style(curve, number)
        axes.plot(curve.x, curve.y, label=text.inert(curve.label), **style)
        if curve.spread:
            x, low, high = zip(*curve.spread, strict=True)
            axes.vlines(x, low, high, colors=style["color"], linewidth=3.2, alpha=0.35, zorder=2.5)


def _log_axes(axes: Axes, chart: Chart) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted({x for curve in chart.curves for x in curve.x})
    axes.xaxis.set_major_locator(FixedLocator(sizes[:: max(1, -(-len(sizes) // 9))]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: text.size(x)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda y, _: f"{y:g}" if _few_decades(axes) else ""))


def _against_reference(axes: Axes, chart: Chart) -> None:
    """Draw everything once more in % of the reference: over decades a miss of 10 % is not to be seen.

    Without references, as in a comparison of sides, the baseline takes their place.
    """
    _frame(axes)
    whole = next((c for c in chart.curves if c.role in ("reference", "baseline")), None)
    reference = dict(zip(whole.x, whole.y, strict=True)) if whole else {}
    measured: list[float] = []
    for number, curve in enumerate(chart.curves):
        points = [
            (x, 100 * y / reference[x]) for x, y in zip(curve.x, curve.y, strict=True) if x in reference
        ]
        if points and curve.role != "ceiling":
            x, y = zip(*points, strict=True)
            axes.plot(x, y, **_style(curve, number))
            measured += [share for share in y if math.isfinite(share)]
    if chart.band:
        inside = [(x, low, high) for x, low, high in chart.band if x in reference]
        axes.fill_between(
            [x for x, _, _ in inside],
            [100 * low / reference[x] for x, low, _ in inside],
            [100 * high / reference[x] for x, _, high in inside],
            color="#01020e",
            linewidth=0,
        )
    if measured:
        low, high = min(measured), max(measured)
        room = max(4.0, 0.15 * (high - low))
        if whole is None or whole.role == "reference":
            axes.set_ylim(max(0.0, low - room), min(high + room, 400.0))
        elif high > _DECADE * low > 0:
            axes.set_yscale("log")
            axes.set_ylim(low / 1.3, high * 1.3)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
            axes.yaxis.set_minor_locator(NullLocator())
        else:
            axes.set_ylim(max(0.0, low - room), high + room)
    name = "ref." if whole is None or whole.role == "reference" else text.inert(whole.label)
    axes.set_ylabel(f"% of {name if len(name) <= _SHORT_NAME else 'base'}", color=_INK)


def _few_decades(axes: Axes) -> bool:
    low, high = axes.get_ylim()
    return bool(low > 0 and high / low < 8)


def _inline(svg: str, chart: Chart) -> str:
    svg = svg[svg.index("<svg") :]
    before, _, metadata = svg.partition("<metadata>")
    svg = before + metadata.partition("</metadata>")[2] if metadata else svg
    svg = re.sub(r'^(<svg[^>]*?) (?:width="[^"]*")', r"\1", svg)
    svg = re.sub(r'^(<svg[^>]*?) (?:height="[^"]*")', r"\1", svg)
    # Several figures share the page: ids must differ, and xlink needs no namespace of its own.
    svg = re.sub(r'\bid="', f'id="{chart.id}-', svg)
    svg = svg.replace('xlink:href="#', f'href="#{chart.id}-').replace("url(#", f"url(#{chart.id}-")
    svg = svg.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    for sentinel, variable in _VARIABLES.items():
        svg = svg.replace(sentinel, f"var({variable})")
    return svg.replace("<svg ", f'<svg class="chart" role="img" aria-labelledby="{chart.id}-title" ', 1)
