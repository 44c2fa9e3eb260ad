"""The trainer's watchdog without a trainer: who is at fault, and nobody waits for a store that is gone."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lora_trainer import watchdog
from lora_trainer.watchdog import Beat, Watchdog, describe, ranks_at_fault
from tests.kit.cases import cases


def beat(step: int, place: int, *, changed: float = 100.0, moved: float = 100.0, node: str = "n1") -> Beat:
    """A rank's state; by default it has just moved at 100 s."""
    return Beat(node, step, place, "forward", 1, changed, moved)


@cases(
    "beats, now, who, told",
    ({0: beat(5, 3), 1: beat(5, 3)}, 130.0, [], ""),
    ({0: beat(5, 3), 1: beat(5, 3, changed=79.0)}, 100.0, [1], "no sign of life"),
    # All wait; the one that is behind in the step, or a step behind, is the one they wait for.
    ({0: beat(5, 9), 1: beat(5, 3), 2: beat(5, 9)}, 141.0, [1], "while the others wait"),
    ({0: beat(6, 1), 1: beat(5, 9)}, 141.0, [1], "while the others wait"),
    ({0: beat(5, 9), 1: beat(5, 9)}, 141.0, [0, 1], "no rank is behind"),
    # One still moves: no hang, however long another takes.
    ({0: beat(5, 9), 1: beat(5, 3, moved=140.0)}, 141.0, [], ""),
)
def test_who_is_at_fault(beats, now, who, told):
    """Catches: a waiting rank blamed for the one that it waits for, and a slow one taken for a hung one."""
    alive = {rank: b if b.changed < 100 else Beat(**{**vars(b), "changed": now}) for rank, b in beats.items()}
    what, ranks = ranks_at_fault(alive, now, silent_s=20, hang_s=40)
    assert ranks == who and told in what and bool(what) == bool(told)
    if ranks:
        assert f"rank {who[0]} on n1" in describe(what, ranks, alive)


class Store:
    """A store of two ranks, one of which is this process's; `gone` is set when its node vanishes."""

    def __init__(self, *, peer: int) -> None:
        self.gone = threading.Event()
        self.alive = True
        self._peer, self._count = f"watch/{peer}", 1
        self._values = {self._peer: ""}
        self._beat()

    def _beat(self) -> None:
        self._count += self.alive
        self._values[self._peer] = json.dumps([f"n{self._peer[-1]}", 4, 2, "forward", self._count])

    def forget(self) -> None:
        """The other rank never sent anything."""
        del self._values[self._peer]
        self.alive = False

    def set(self, key: str, value: str) -> None:
        """Sent and forgotten, as by a TCP client whose peer is gone."""
        if not self.gone.is_set():
            self._values[key] = value

    def check(self, keys: list[str]) -> bool:
        """Wait for ever for an answer once the node is gone."""
        if self.gone.is_set():
            threading.Event().wait(30)
        return all(key in self._values for key in keys)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """The other rank's count grows while it lives."""
        if self._peer in keys:
            self._beat()
        return [self._values[key].encode() for key in keys]


class Ended(BaseException):
    """Stands for the end of the process, in one thread."""


DOGS: list[Watchdog] = []


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set where the process would have ended."""
    event = threading.Event()

    def end(status: int) -> None:
        assert status == watchdog.EXIT_HUNG
        event.set()
        raise Ended

    monkeypatch.setattr(watchdog.os, "_exit", end)
    monkeypatch.setattr(watchdog, "_PERIOD_S", 0.02)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    yield event
    while DOGS:  # no process ends here: what is left of it must not speak into the next test, or end it
        DOGS.pop().stop()
    for thread in threading.enumerate():
        if thread.name.startswith("watchdog"):
            thread.join(1)  # one that waits for a store says nothing when it is answered


def started(
    store: Any, said: list[tuple[str, str]], *, rank: int, start_s: float = 60, step: int = 4
) -> Watchdog:
    """The watchdog of one of two ranks."""
    dog = Watchdog(
        store, rank, 2, f"n{rank}", hang_s=0.4, start_s=start_s, give_reason=lambda *told: said.append(told)
    )
    DOGS.append(dog)
    dog.mark(step, 2, "forward")
    dog.start()
    return dog


def test_a_store_that_never_answers_ends_the_rank_and_names_its_node(ended):
    """Catches: a first node that vanishes without a word, for which the others wait for many minutes."""
    store, said = Store(peer=0), list[tuple[str, str]]()
    started(store, said, rank=1)
    assert not ended.wait(0.6), said  # a store that answers is left alone
    store.gone.set()
    assert ended.wait(10)
    assert said == [
        (
            "environment",
            "rank 0 on n0: the node that serves the job's store no longer answers (silent for 0 s)",
        )
    ]


def test_the_store_may_fall_silent_once_training_is_over(ended):
    """Catches: a job that trained well and is called hung because its first node ended first."""
    store, said = Store(peer=0), list[tuple[str, str]]()
    dog = started(store, said, rank=1)
    assert not ended.wait(0.1)
    dog.stop()
    store.gone.set()
    assert not ended.wait(0.6) and not said


def test_training_that_ends_while_the_store_is_asked_is_no_hang(ended, monkeypatch):
    """Catches: a rank that trained well and dies of an answer that came late, when the others were done."""
    store, said = Store(peer=1), list[tuple[str, str]]()
    asked, answered, answer = threading.Event(), threading.Event(), store.multi_get

    def late(keys: list[str]) -> list[bytes]:
        found = answer(keys)
        if not store.alive:
            asked.set()
            answered.wait(30)
        return found

    store.multi_get = late  # type: ignore[method-assign]
    monkeypatch.setattr(Watchdog, "_watch_store", lambda _: None)  # of the store's own silence
    dog = started(store, said, rank=0)
    assert not ended.wait(0.1)
    store.alive = False
    assert asked.wait(10)
    threading.Event().wait(0.5)  # longer than a rank may be silent
    dog.stop()
    answered.set()
    dog.join(10)
    assert not ended.is_set() and not said


def test_a_rank_that_stops_after_its_first_sign_of_life_is_named(ended):
    """Catches: a rank that is stopped before it was watched, and so is waited for without end."""
    store, said = Store(peer=1), list[tuple[str, str]]()
    store.alive = False
    started(store, said, rank=0)
    assert ended.wait(10)
    assert said == [("environment", "rank 1 on n1: no sign of life for 0 s (step 4, forward)")]


def test_a_rank_that_was_never_heard_of_is_named(ended):
    """Catches: a rank that hangs before its first sign of life."""
    store, said = Store(peer=1), list[tuple[str, str]]()
    store.forget()
    started(store, said, rank=0, start_s=0.3, step=0)
    assert ended.wait(10)
    assert "rank 1: no sign of life" in said[0][1]


def test_a_rank_tells_where_it_is_before_its_thread_first_runs(ended, monkeypatch):
    """Catches: two seconds after the start in which a rank that stops leaves no trace of itself."""
    monkeypatch.setattr(watchdog, "_PERIOD_S", 60.0)
    store = Store(peer=0)
    dog = started(store, [], rank=1)
    assert json.loads(store.multi_get(["watch/1"])[0]) == ["n1", 4, 2, "forward", 1]
    dog.stop()
