"""Training data: dolly-15k's JSONL, or made-up instructions; packed into sequences of equal length.

Samples follow each other without padding, and attention crosses their borders, as in MLPerf's
llama2_70b_lora. Which sequence a rank trains on at a step depends on the seed and on nothing else, so a
resumed job continues where the killed one was.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import torch

from shakedown.benchmarks.lora.settings import GENERATED, TrainingSpec
from shakedown.records.reading import BadInput

# Fields of dolly-15k (databricks-dolly-15k.jsonl) and the prompt that Databricks trained Dolly 2.0 with.
_PROMPT = "### Instruction:\n{instruction}\n\n{context}### Response:\n{response}\n\n### End\n\n"
_GENERATED_SAMPLES = 20_000
_LONGEST_FILE_BYTES = 1 << 30


class Tokenizer(Protocol):
    """The part of a tokenizer that is used."""

    def encode(self, text: str) -> list[int]:
        """Return a text's tokens."""


class Bytes:
    """A token for every byte, and 256 for the end of a sample: needs no file and fits every vocabulary."""

    def encode(self, text: str) -> list[int]:
        """Return the text's UTF-8 and the end token."""
        return [*text.encode(), 256]


def texts(spec: TrainingSpec) -> Iterator[str]:
    """Yield every sample as text.

    Raises:
        BadInput: a file that is missing, empty, or has an empty or broken line.
    """
    if spec.data == GENERATED:
        yield from _generated(spec.seed)
        return
    path = Path(spec.data)
    try:
        if path.stat().st_size > _LONGEST_FILE_BYTES:
            raise BadInput("larger than 1 GiB", fix="give dolly-15k's JSONL", file=path)
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"training data cannot be read: {error}", fix="give dolly-15k's JSONL", file=path
        ) from None
    if not lines:
        raise BadInput("no training data in it", fix="give dolly-15k's JSONL", file=path)
    for number, line in enumerate(lines, start=1):
        yield _dolly(line, path, number)


def _dolly(line: str, path: Path, number: int) -> str:
    fix = 'each line is {"instruction": ..., "context": ..., "response": ...}'
    if not line.strip():
        raise BadInput("an empty line", fix=fix, file=path, line=number)
    try:
        sample = json.loads(line)
        instruction, context, response = (sample[k] for k in ("instruction", "context", "response"))
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"not a sample: {error!r}", fix=fix, file=path, line=number) from None
    if not all(isinstance(x, str) for x in (instruction, context, response)) or not response.strip():
        raise BadInput("a sample without a response", fix=fix, file=path, line=number)
    context = f"Input:\n{context}\n\n" if context.strip() else ""
    return _PROMPT.format(instruction=instruction, context=context, response=response)


def _generated(seed: int) -> Iterator[str]:
    """Yield instructions whose answers follow from them: a small language that any correct trainer learns."""
    words = ("rail", "leaf", "spine", "queue", "pause", "drain", "fence", "probe")
    draw = random.Random(seed)  # noqa: S311  (data, not a secret)
    for _ in range(_GENERATED_SAMPLES):
        word, times = draw.choice(words), draw.randint(2, 5)
        yield f"say {word} {times} times: {' '.join([word] * times)}\n"


class Batches:
    """All sequences of a job, [n, sequence_tokens + 1], in an order that follows from the seed."""

    def __init__(self, spec: TrainingSpec, tokenizer: Tokenizer, replicas: int) -> None:
        wanted = (spec.sequence_tokens + 1) * spec.global_batch * spec.steps
        flat: list[int] = []
        for text in texts(spec):
            flat += tokenizer.encode(text)
            if spec.data == GENERATED and len(flat) > wanted:
                break
        count = len(flat) // (spec.sequence_tokens + 1)
        if count < 1:
            raise BadInput(
                f"{len(flat)} tokens do not fill one sequence of {spec.sequence_tokens}",
                fix="give more data or shorter sequences",
            )
        packed = torch.tensor(flat[: count * (spec.sequence_tokens + 1)], dtype=torch.int32)
        self._sequences = packed.view(count, -1)
        self._spec, self._replicas = spec, replicas

    @property
    def largest_token(self) -> int:
        """The largest token there is, which the model's vocabulary must hold."""
        return int(self._sequences.max())

    def batch(self, step: int, micro_batch: int, replica: int) -> torch.Tensor:
        """Return one replica's micro-batch of a step (counted from 1), [micro_batch, sequence_tokens + 1]."""
        size = self._spec.micro_batch
        first = (step - 1) * self._spec.global_batch + (micro_batch * self._replicas + replica) * size
        places = [self._place(first + i) for i in range(size)]
        return self._sequences[places].long()

    def _place(self, number: int) -> int:
        """Return which sequence is the number-th to be trained on: every epoch in an order of its own."""
        epoch, place = divmod(number, len(self._sequences))
        if getattr(self, "_epoch", None) != epoch:
            order = list(range(len(self._sequences)))
            random.Random(f"{self._spec.seed}/{epoch}").shuffle(order)  # noqa: S311
            self._epoch, self._order = epoch, order
        return self._order[place]
