"""How a task that Slurm starts gets the site's software; programs inside a task use onnode.software."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable
from pathlib import Path

from shakedown.benchmarks.base.contract import module
from shakedown.intent.software import Origin, Source
from shakedown.onnode.software import apptainer_words, mounts, pyxis_options
from shakedown.plan.jobs import JobSpec
from shakedown.records.errors import BadInput


def of(job: JobSpec, *names: str) -> tuple[str, Source | None]:
    """Return the first of these that the site says something of; else the first, and None."""
    found = next(((name, job.software[name]) for name in names if name in job.software), None)
    return found or (names[0], None)


def required(said: Container[str], *names: str, by: str) -> None:
    """Refuse a plan whose site names none of these interpreters of PyTorch; the first is the one to name.

    `by` begins the refusal: the key that asks for it, with its verb.

    Raises:
        BadInput: naming both keys.
    """
    if not any(name in said for name in names):
        key = by.split(maxsplit=1)[0].rpartition(".")[2]
        raise BadInput(
            f"{by}, and the site says nowhere where it is",
            fix=f"say software.{names[0]}: {{from: ...}} (group_vars/all/software.yml), or leave {key} out",
        )


def within(
    source: Source | None,
    name: str,
    words: tuple[str, ...],
    out: Path,
    *,
    gpus: bool,
    more: Iterable[str] = (),
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return quoted words that run `words` with a software, and the options of the srun before them."""
    if source is None:
        return words, ()
    place = source.from_
    if not isinstance(place, Origin) or place.container is None:
        by_path = place == "package" or source.interpreter == getattr(place, "path", None)
        if by_path and not source.libraries and not source.pythonpath:
            return words, ()  # what the system has, or an interpreter by path, needs nothing else
        return (*module("shakedown.onnode.software", out, name, "--"), *words), ()
    seen = [*mounts(out), *more, *source.pythonpath]
    if place.runtime == "pyxis":
        return words, tuple(map(shlex.quote, pyxis_options(place.container, seen)))
    return (*map(shlex.quote, apptainer_words(place.container, seen, gpus=gpus)), *words), ()
