"""`make test`: all that CI runs, in phases. The lab is made beside the linters and the tests that need none.

A phase's output is kept in a file and shown in one piece, in the order of the table below: live while it is
its turn, later where it ran beside another one. Whatever ends this program, the lab is taken down.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import cluster
from lab.paths import CHECKOUT

# A person who hears nothing for longer thinks that it hangs.
PROGRESS_S = 30.0
_POLL_S = 0.2
# How long a phase may clean up before it is killed.
_PATIENCE_S = 30.0
# What pytest says last, and CI counts by.
_CLOSING = re.compile(r"(=+ )?\d+ (passed|failed|skipped|errors?|deselected|warnings?)\b.* in [\d.]+s\b")


@dataclass(frozen=True)
class Phase:
    """A command, and which phases must have ended well before it."""

    name: str
    argv: tuple[str, ...]
    after: tuple[str, ...] = ()
    # It checks nothing: when nothing follows it any more, it is ended.
    prepares: bool = False


def all_is_committed() -> bool:
    """Whether this checkout is its HEAD, which test-bare clones; no where git cannot tell."""
    status = ("git", "-C", str(CHECKOUT), "status", "--porcelain")
    try:
        done = subprocess.run(status, capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0 and not done.stdout.strip()


def phases(lab: str, *, committed: bool) -> tuple[Phase, ...]:
    """Return the phases, in the order in which they are shown; `lab` is the name of the lab they use.

    `committed`: the fast tests run once, in test-bare, which knows only what is committed.
    """
    code = "test-slow" if committed else "test-code"
    # Set-up has run: `make test` needs it.
    target = (os.environ.get("MAKE", "make"), "--no-print-directory", "--old-file=setup")
    lab_command = (sys.executable, "-m", "lab")
    return (
        Phase("lint", (*target, "lint")),
        Phase("lab-up", (*lab_command, "up", "--name", lab), prepares=True),
        Phase("lab-converge", (*lab_command, "converge", "--name", lab), ("lab-up",), prepares=True),
        # Not while the lab boots: a kernel that boots on a busy host may give up its TSC (lab/clocks.py).
        Phase("test-spaces", (*target, "test-spaces"), ("lint", "lab-up")),
        Phase(code, (*target, code), ("test-spaces",)),
        # Debian's own Python, and nothing that a machine in use has beside it.
        Phase("test-bare", (*target, "SUITES=bookworm", "test-bare"), (code, "lab-converge")),
        Phase("test-faults", (*target, "test-faults"), ("test-bare",)),
    )


@dataclass
class _Started:
    """A phase that was started; `seconds` and `status` once it has ended."""

    phase: Phase
    output: Path
    process: subprocess.Popen[bytes]
    begin: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    status: int | None = None
    was_ended: bool = False
    _shown_bytes: int = 0

    def ended(self) -> bool:
        """Whether it has ended."""
        if self.status is None and (status := self.process.poll()) is not None:
            self.status, self.seconds = status, time.monotonic() - self.begin
        return self.status is not None

    def end(self) -> None:
        """End it and all that it started: by Ctrl-C, and by force what does not come to its end."""
        if self.ended():
            return
        self.was_ended = True
        self._signal(signal.SIGINT)
        asked = time.monotonic()
        # Looked at and not reaped: until then the number is its group's and nobody else's.
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while os.waitid(os.P_PID, self.process.pid, how) is None and time.monotonic() < asked + _PATIENCE_S:
            time.sleep(_POLL_S)
            # What was started in a background ignores Ctrl-C, and so does all that it starts.
            if time.monotonic() > asked + _PATIENCE_S / 3:
                self._signal(signal.SIGTERM)
        self._signal(signal.SIGKILL)
        self.process.wait()
        self.ended()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def new_lines(self) -> list[str]:
        """Return what it said since the last call; a line without an end only once it has ended itself."""
        ended = self.ended()
        with self.output.open("rb") as output:
            output.seek(self._shown_bytes)
            new = output.read()
        new = new if ended else new[: new.rfind(b"\n") + 1]
        self._shown_bytes += len(new)
        return new.decode(errors="replace").splitlines()

    def last_line(self) -> str:
        """Return what it said last."""
        with self.output.open("rb") as output:
            output.seek(max(0, self.output.stat().st_size - 2000))
            said = output.read().decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(said) if line.strip()), "nothing yet")

    @property
    def result(self) -> str:
        """How it ended, in words."""
        if self.was_ended:
            return "ended"
        return "passed" if self.status == 0 else f"FAILED with status {self.status}"


class Run:
    """The phases of one call."""

    def __init__(self, wanted: Sequence[Phase], folder: Path, environment: Mapping[str, str]) -> None:
        self._wanted = wanted
        self._folder = folder
        self._environment = environment
        self._started: dict[str, _Started] = {}
        self._turn = 0  # whose output is shown, in the order of `wanted`
        self._heading = ""
        self._closing = ""
        self._interrupted = False
        self._begin = self._told = self._said = time.monotonic()

    def to_the_end(self) -> int:
        """Run them all, or up to one that fails; return 0 when all passed, 130 after `interrupt`."""
        while not self._interrupted and (self._start_what_can() or self._running()):
            self._show()
            self._tell()
            time.sleep(_POLL_S)
        self.end()
        self._show(to_the_end=True)
        self._table()
        if self._interrupted:
            return 130
        return 0 if self._passed(phase.name for phase in self._wanted) else 1

    def interrupt(self, *_signal: object) -> None:
        """Come to the end; as a signal's handler it raises nothing, so that no phase is lost as it starts."""
        self._interrupted = True

    def end(self) -> None:
        """End whatever still runs."""
        for one in self._running():
            one.end()

    def _running(self) -> list[_Started]:
        return [one for one in self._started.values() if not one.ended()]

    def _passed(self, names: Iterable[str]) -> bool:
        return all(name in self._started and self._started[name].status == 0 for name in names)

    def _start_what_can(self) -> bool:
        """Start the phases whose time has come; whether there was one."""
        if any(one.ended() and one.status != 0 for one in self._started.values()):
            for one in self._running():
                if one.phase.prepares:
                    one.end()
            return False
        able = [p for p in self._wanted if p.name not in self._started and self._passed(p.after)]
        for phase in able:
            output = self._folder / phase.name
            with output.open("wb") as to:
                process = subprocess.Popen(
                    phase.argv,
                    cwd=CHECKOUT,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=to,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._started[phase.name] = _Started(phase, output, process)
        return bool(able)

    def _show(self, *, to_the_end: bool = False) -> None:
        """Print what is new of the phase whose turn it is, and of those after it once that one has ended."""
        while self._turn < len(self._wanted):
            one = self._started.get(self._wanted[self._turn].name)
            if one is None and not to_the_end:
                return
            if one is not None:
                ended, new = one.ended(), one.new_lines()
                if self._heading != one.phase.name:
                    self._close()
                    self._say(f"\n--- {one.phase.name} ---")
                    self._heading = one.phase.name
                for line in new:
                    if _CLOSING.match(line):
                        self._close()
                        self._closing = line
                    else:
                        self._say(line)
                if not ended:
                    return
            self._turn += 1

    def _tell(self) -> None:
        """Say from time to time of each phase that it runs, if its own output does not."""
        now = time.monotonic()
        if now - self._told < PROGRESS_S:
            return
        self._told, spoke = now, now - self._said < PROGRESS_S
        for one in self._running():
            if not (spoke and self._wanted[self._turn : self._turn + 1] == (one.phase,)):
                self._say(
                    f"[{self._clock()}] {one.phase.name}, {now - one.begin:.0f} s: {one.last_line()[:90]}"
                )

    def _table(self) -> None:
        """A line for each phase, and pytest's last closing line."""
        self._say(f"\n{'phase':<14} seconds  result")
        for phase in self._wanted:
            one = self._started.get(phase.name)
            seconds, result = (f"{one.seconds:.0f}", one.result) if one else ("-", "not run")
            self._say(f"{phase.name:<14} {seconds:>7}  {result}")
        self._say(f"{'make test':<14} {time.monotonic() - self._begin:>7.0f}")
        self._close()

    def _close(self) -> None:
        """Print pytest's closing line, which was kept back in case that it is the last one."""
        if self._closing:
            self._say(self._closing)
        self._closing = ""

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self._begin)
        return f"{seconds // 60}:{seconds % 60:02d}"

    def _say(self, line: str) -> None:
        print(line, flush=True)
        self._said = time.monotonic()


def main() -> int:
    """Run the phases; 0 when all passed, 130 after Ctrl-C or SIGTERM."""
    digest = hashlib.sha256(os.fsencode(CHECKOUT)).hexdigest()[:6]
    lab = os.environ.get("SHAKEDOWN_TEST_LAB", f"ci-{digest}")
    environment = {
        **os.environ,
        "SHAKEDOWN_TEST_LAB": lab,
        "SHAKEDOWN_KEEP_LAB": "new",
        "PYTHONUNBUFFERED": "1",
    }
    with tempfile.TemporaryDirectory(prefix="shakedown-ci-") as folder:
        run = Run(phases(lab, committed=all_is_committed()), Path(folder), environment)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, run.interrupt)
        try:
            cluster.stop(lab)  # of a call that was killed
            return run.to_the_end()
        finally:
            run.end()
            cluster.stop(lab)


if __name__ == "__main__":
    sys.exit(main())
