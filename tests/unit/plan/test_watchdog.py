"""The trainer's watchdog without a trainer: who is at fault, and nobody waits for a store that is gone."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from shakedown.trainer import watchdog
from shakedown.trainer.watchdog import Beat, Watchdog, culprits, describe


def beat(step: int, place: int, *, changed: float = 100.0, moved: float = 100.0, node: str = "n1") -> Beat:
    """A rank's state; by default it has just moved at 100 s."""
    return Beat(node, step, place, "forward", 1, changed, moved)


@pytest.mark.parametrize(
    ("beats", "now", "who", "told"),
    [
        ({0: beat(5, 3), 1: beat(5, 3)}, 130.0, [], ""),
        ({0: beat(5, 3), 1: beat(5, 3, changed=79.0)}, 100.0, [1], "no sign of life"),
        # All wait; the one that is behind in the step, or a step behind, is the one they wait for.
        ({0: beat(5, 9), 1: beat(5, 3), 2: beat(5, 9)}, 141.0, [1], "while the others wait"),
        ({0: beat(6, 1), 1: beat(5, 9)}, 141.0, [1], "while the others wait"),
        ({0: beat(5, 9), 1: beat(5, 9)}, 141.0, [0, 1], "nobody is behind"),
        # One still moves: no hang, however long another takes.
        ({0: beat(5, 9), 1: beat(5, 3, moved=140.0)}, 141.0, [], ""),
    ],
)  # fmt: skip
def test_who_is_at_fault(beats, now, who, told):
    """Catches: a waiting rank blamed for the one that it waits for, and a slow one taken for a hung one."""
    alive = {rank: b if b.changed < 100 else Beat(**{**vars(b), "changed": now}) for rank, b in beats.items()}
    what, ranks = culprits(alive, now, silent_s=20, hang_s=40)
    assert ranks == who and told in what and bool(what) == bool(told)
    if ranks:
        assert f"rank {who[0]} on n1" in describe(what, ranks, alive)


class Store:
    """A store of two ranks, the other of which is at rest; `gone` is set when its node vanishes."""

    def __init__(self) -> None:
        self.gone, self.asked = threading.Event(), threading.Event()
        self._values: dict[str, str] = {"watch/0": json.dumps(["n1", 4, 2, "forward", 1])}
        self.beats = 1

    def set(self, key: str, value: str) -> None:
        """Sent and forgotten, as by a TCP client whose peer is gone."""
        if not self.gone.is_set():
            self._values[key] = value

    def check(self, keys: list[str]) -> bool:
        """Wait for ever for an answer once the node is gone."""
        if self.gone.is_set():
            self.asked.set()
            threading.Event().wait(30)
        return all(key in self._values for key in keys)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Rank 0 lives: its count grows."""
        self.beats += 1
        self._values["watch/0"] = json.dumps(["n1", 4, 2, "forward", self.beats])
        return [self._values[key].encode() for key in keys]


class Ended(BaseException):
    """Stands for the end of the process, in one thread."""


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set where the process would have ended."""
    event = threading.Event()

    def end(status: int) -> None:
        assert status == watchdog.EXIT_HUNG
        event.set()
        raise Ended

    monkeypatch.setattr(watchdog.os, "_exit", end)
    monkeypatch.setattr(watchdog, "_PERIOD_S", 0.02)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    return event


def started(store: Any, said: list[tuple[str, str]]) -> Watchdog:
    """Rank 1's watchdog."""
    dog = Watchdog(store, 1, 2, "n2", hang_s=0.4, start_s=60, give_reason=lambda *told: said.append(told))
    dog.start()
    return dog


def test_a_store_that_never_answers_ends_the_rank_and_names_its_node(ended):
    """Catches: a first node that vanishes without a word, for which the others wait for many minutes."""
    store, said = Store(), list[tuple[str, str]]()
    started(store, said)
    assert not ended.wait(0.6), said  # a store that answers is left alone
    store.gone.set()
    assert ended.wait(10)
    kind, message = said[0]
    assert kind == "environment"
    assert message == "rank 0 on n1: the node that serves the job's store no longer answers (silent for 0 s)"


def test_the_store_may_fall_silent_once_training_is_over(ended):
    """Catches: a job that trained well and is called hung because its first node ended first."""
    store, said = Store(), list[tuple[str, str]]()
    dog = started(store, said)
    assert not ended.wait(0.1)
    dog.stop()
    store.gone.set()
    assert not ended.wait(0.6) and not said
