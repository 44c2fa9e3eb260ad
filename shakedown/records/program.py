"""How a command of ours runs: signals, places, and no search for cycles while it works."""

from __future__ import annotations

import gc
import io
import os
import re
import site
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from shakedown.records.reading import BadInput, ExitStatus, said_by_system

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


# Standard library only: compute nodes use this.


class _OutlivesReader(io.FileIO):
    """An output whose reader may leave (`| head`): the rest goes nowhere, the exit status stays as it was."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            # The interpreter tries once more at its end; failing again, it would exit with its own status.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if isinstance(error, BrokenPipeError):
                return len(memoryview(data).cast("B"))
            raise


def _outliving(stream: TextIO | None) -> TextIO:
    """Return a stream that writes to the same file and survives its reader's end."""
    if stream is None:  # closed by the caller, as `>&-` does
        return Path(os.devnull).open("w", encoding="utf-8")
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_OutlivesReader(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        # A sign that a user's encoding has not is no reason to end (PYTHONIOENCODING, an old locale).
        errors="backslashreplace" if stream.errors == "strict" else stream.errors,
        line_buffering=bool(stream.line_buffering) or stream is sys.__stderr__,
    )


def outlive_readers() -> None:
    """Let this process's own standard streams survive their readers.

    A caller that replaced them, as a test does, keeps its own.
    """
    if sys.stdout is sys.__stdout__:
        sys.stdout = _outliving(sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _outliving(sys.stderr)


def status_of(act: Callable[[], object]) -> ExitStatus:
    """Do something and return the exit status: what is refused or cannot be written is one line and 2."""
    try:
        act()
        sys.stdout.flush()  # here, where a full disk can still be reported as an error
    except (BadInput, OSError) as error:
        print(said_by_system(error) if isinstance(error, OSError) else error, file=sys.stderr)
        return ExitStatus.BAD_INPUT
    return ExitStatus.PASS


def ended(main: Callable[[], int]) -> NoReturn:
    """Run a program's main function and exit with the status that it returns, whoever reads its output."""
    outlive_readers()
    status = 0

    def run() -> None:
        nonlocal status
        try:
            status = main()
        except SystemExit as end:  # a signal's, or argparse's after its help: what it printed counts too
            status = int(end.code or 0)

    failed = status_of(run)
    with suppress(OSError):  # what was printed before; failing at its end, Python would exit with 120
        sys.stdout.flush()
    sys.exit(failed or status)


PACKAGE = Path(__file__).resolve().parent.parent
SOURCE = PACKAGE.parent  # what PYTHONPATH must hold for another interpreter to find this package
# LoadGen's harness and the LoRA trainer, in a checkout and on the submit host; other environments run them.
WORKLOADS = SOURCE / "workloads"


def own_python() -> list[str]:
    """Return the words that start a module of ours with this interpreter, and nothing of a user's.

    A package that lies in none of the interpreter's own places is found by PYTHONPATH alone, which is ours
    then (reframe_tests/settings.py), or in the user's own site-packages (`pip install --user`).
    """
    of_user = Path(site.getusersitepackages()).resolve() == SOURCE
    alone = sys.flags.isolated or not ("PYTHONPATH" in os.environ or of_user)
    return [sys.executable, *(["-I"] if alone else []), "-m"]


@contextmanager
def no_cycle_search() -> Iterator[None]:
    """Pause the search for reference cycles: reading makes no cycle, and the search doubles its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# What every program starts with that we start outside a job; a job's own have it from there. Slurm prints
# times in UTC, since local ones come twice in a night of autumn, and as the manual says: `SLURM_TIME_FORMAT`
# and the like are a user's own wishes for his terminal (scontrol(1)). The format is spelt out: a wrapper of
# Slurm's commands may hand it to date(1), which knows no "standard".
PLAINLY = {"TZ": "UTC", "LC_ALL": "C", "SLURM_TIME_FORMAT": "%Y-%m-%dT%H:%M:%S"}
# What a user may have set for himself and must not steer a run: what Slurm's commands show, ask for or start
# with, ReFrame's and Python's places, what is loaded into every program, how many threads and which devices a
# program takes. What a measured program may see of his is said by the site (`acceptance.*.variables`). Where
# Slurm is stays, and so does LD_LIBRARY_PATH, by which a site may find Slurm's own libraries.
_OF_USERS = re.compile(
    r"(SQUEUE|SINFO|SACCT|SBATCH|SALLOC|SCANCEL|SCONTROL|SPRIO|SRUN|RFM|PYTHON|UCX|OMPI|PMIX|PRTE|NCCL|RCCL"
    r"|MPICH|I_MPI|ANSIBLE|OMP|GOMP|KMP|MKL|OPENBLAS|FI|PSM\d|MLX\d|RDMAV|IBV|PYTORCH|TORCH_(NCCL|CUDA)|HSA"
    r"|ROCR|HIP|CUDA_MPS|MALLOC)_\w+|GREP_(OPTIONS|COLORS?)|PYTHON[A-Z]+|LD_(PRELOAD|AUDIT)|BASH_ENV|ENV"
    r"|CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|LAUNCH_BLOCKING|DEVICE_MAX_CONNECTIONS|MODULE_LOADING)"
    r"|GPU_DEVICE_ORDINAL|NVIDIA_(VISIBLE_DEVICES|TF32_OVERRIDE)|GLIBC_TUNABLES|LC_\w+|LANG\w*"
    r"|SLURM_(?!CONF$|CLUSTERS$|CONF_SERVER$|JWT$)\w+"
)


# Of these, what everybody has and nobody misses.
_USUAL = re.compile(r"LC_\w+|LANG\w*|PYTHON(UNBUFFERED|DONTWRITEBYTECODE)|SLURM_TIME_FORMAT")


def users_wishes(environment: Iterable[str]) -> str:
    """Say which variables of an environment are a user's own wishes, but for usual ones; empty: none."""
    found = sorted(name for name in environment if _OF_USERS.fullmatch(name) and not _USUAL.fullmatch(name))
    return f"kept from this run: {', '.join(found)}" if found else ""


# Where Ansible finds things and secrets is the site's own; how it merges, prints and logs is a user's wish.
_OF_ANSIBLES_USERS = re.compile(
    r"ANSIBLE_(HASH_BEHAVIOUR|JINJA2_NATIVE|VERBOSITY|DEBUG|LOG_PATH|FORCE_COLOR|DUPLICATE_YAML_DICT_KEY"
    r"|PRECEDENCE|(STDOUT_)?CALLBACK\w*|DISPLAY_\w+|SHOW_\w+)"
)


def ansible_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what Ansible is started with to read a site: it starts in no locale that is not installed."""
    own = (n for n in environment if n.startswith("ANSIBLE_") and not _OF_ANSIBLES_USERS.fullmatch(n))
    kept = {name: environment[name] for name in own}
    return {**plain_environment(environment), **kept, "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1"}


def plain_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what a user wishes for himself, and with `PLAINLY`."""
    kept = {name: value for name, value in environment.items() if not _OF_USERS.fullmatch(name)}
    return {**kept, **PLAINLY}
