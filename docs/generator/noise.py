"""docs/reference/noise.md from the registry of noise models."""

from __future__ import annotations

from generator.text import made, table

from noise_models import NOISE, NoiseModel
from shakedown.simulate.fabric import Phase

_WHEN = {
    Phase.NODE: "what a node can do",
    Phase.PATH: "the slowest part of a flow's way",
    Phase.RATE: "every rate",
    Phase.OUTPUT: "what is written down",
}
_HEAD = """# Noise models of the published figures

They lie in `research/noise_models.py`. Several act together, and beside the noise of one measurement
unless a model says that it takes its place. A model is *benign* if a localiser must see through it, *hard* if
it may answer "undecided". Those *held out* serve the last check only: no threshold was chosen with them.
A value whose source is *assumed* was not taken from a measurement.
"""


def pages() -> dict[str, str]:
    """Return the page."""
    return {
        "docs/reference/noise.md": "\n".join([made("the noise models"), _HEAD, *map(_model, NOISE.values())])
    }


def _model(model: NoiseModel) -> str:
    kind = ["hard" if model.hard else "benign", *["held out"] * model.held_out]
    lines = [
        f"## {model.name}\n",
        f"{model.says[0].upper()}{model.says[1:]}. Changes {_WHEN[model.phase]}; {', '.join(kind)}"
        + ("; takes the place of the noise of one measurement.\n" if model.cell else ".\n"),
        table(
            ("parameter", "default", "from", "to", "what it is", "source"),
            [
                (f"`{key}`", f"{p.default:g}", f"{p.low:g}", f"{p.high:g}", p.says, p.source)
                for key, p in model.parameters.items()
            ],
        ),
    ]
    return "\n".join(lines)
