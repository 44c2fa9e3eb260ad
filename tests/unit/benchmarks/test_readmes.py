"""Each benchmark's README says what it measures, how it is asked for, and what its output looks like."""

import re
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter

from shakedown import benchmarks
from shakedown.benchmarks.registry import BENCHMARKS, Acceptance
from shakedown.intent.software import Sources

FOLDER = Path(benchmarks.__file__).parent
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(name: str) -> list[tuple[str, str]]:
    """Language and text of each block of a benchmark's README."""
    return BLOCK.findall((FOLDER / name / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [benchmark.name for benchmark in BENCHMARKS])
def test_a_real_output_is_shown(name):
    """Catches: a benchmark without a README, or one that shows no output of it."""
    assert any(language != "yaml" and text.strip() for language, text in blocks(name))


@pytest.mark.parametrize("name", [benchmark.name for benchmark in BENCHMARKS])
def test_the_example_is_what_a_site_may_write(name):
    """Catches: an example with a key that is gone, or that the model refuses."""
    for language, text in blocks(name):
        if language == "yaml":
            document = yaml.safe_load(text)
            Acceptance.model_validate(document.get("acceptance", {}))
            TypeAdapter(Sources).validate_python(document.get("software", {}))
