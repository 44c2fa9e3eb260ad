"""Checkpoints of the adapters and their optimiser: small, since frozen weights need not be saved.

A checkpoint is whole once `latest.json` names it; it is written last, by rank 0, after all others are done.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist

from lora_trainer.layout import Adapters, Layout
from shakedown.benchmarks.lora.settings import TrainingSpec
from shakedown.records.reading import BadInput

# What a resumed job may change: everything else would make another curve.
_FREE = {
    "python",
    "container",
    "variables",
    "compile",
    "checkpoint_every",
    "hang_s",
    "start_s",
    "time_limit_s",
    "metrics",
}


def save(folder: Path, step: int, adapters: Adapters, layout: Layout, spec: TrainingSpec) -> None:
    """Save what training had after a step."""
    at = folder / f"step-{step}"
    at.mkdir(parents=True, exist_ok=True)
    if layout.first_copy:
        state = {"weights": adapters.masters, "optimizer": adapters.optimizer.state_dict()}
        aside = at / f"shard-{layout.shard}.partial"
        torch.save(state, aside)
        aside.replace(aside.with_suffix(".pt"))
    dist.barrier()
    if dist.get_rank() == 0:
        aside = folder / "latest.partial"
        aside.write_text(json.dumps({"step": step, "spec": _kept(spec)}) + "\n", encoding="utf-8")
        aside.replace(folder / "latest.json")
        for old in folder.glob("step-*"):
            if old.name != at.name:
                shutil.rmtree(old, ignore_errors=True)


def latest(folder: Path, spec: TrainingSpec) -> int:
    """Return the step of the last whole checkpoint, 0 if there is none.

    Raises:
        BadInput: it is another job's.
    """
    path = folder / "latest.json"
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return 0
    except ValueError as error:
        raise BadInput(f"not a checkpoint: {error}", fix="remove the folder", file=path) from None
    if found.get("spec") != json.loads(json.dumps(_kept(spec))):
        raise BadInput("a checkpoint of other settings", fix="remove the folder or restore them", file=path)
    return int(found["step"])


def load(folder: Path, step: int, adapters: Adapters, layout: Layout) -> None:
    """Restore what training had after a step. Raises BadInput."""
    path = folder / f"step-{step}" / f"shard-{layout.shard}.pt"
    device = adapters.masters[0].device
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # torch raises whatever the file makes it raise
        raise BadInput(f"checkpoint cannot be read: {error}", fix="remove the folder", file=path) from None
    with torch.no_grad():
        for mine, saved in zip(adapters.masters, state["weights"], strict=True):
            mine.copy_(saved)
    adapters.optimizer.load_state_dict(state["optimizer"])
    adapters.publish()


def _kept(spec: TrainingSpec) -> dict[str, object]:
    return {k: v for k, v in asdict(spec).items() if k not in _FREE}
