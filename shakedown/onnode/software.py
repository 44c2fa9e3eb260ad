"""Makes a job's software usable on this node: modules, Spack, folders, containers. Standard library only.

    python -m shakedown.onnode.software FOLDER NAME -- COMMAND...     (runs the command with that software)
    python3 - look SOURCES < software.py     (prints as JSON why each of them cannot be used here, or nothing)

FOLDER/software.json says where each program comes from (shakedown/intent/software.py). Names, paths and
images travel as arguments of one fixed script, never as its text.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = "software.json"
Problem = dict[str, str]
_LOAD_S = 120.0
_NO_PYXIS = "Slurm has no pyxis here (srun has no --container-image)"
# Lmod and Tcl modules put a function into shells. `module load` of old Tcl modules ends with 0 in any case,
# so what is loaded is looked up. The environment goes to what was standard output; a module may print.
_MODULES = """
exec 3>&1 1>&2
for file in "${LMOD_PKG:-/nowhere}/init/bash" "${MODULESHOME:-/nowhere}/init/bash" /etc/profile.d/lmod.sh \\
    /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh /usr/share/lmod/lmod/init/bash \\
    /usr/share/modules/init/bash; do
    type module >/dev/null 2>&1 && break
    [ ! -r "$file" ] || . "$file"
done
type module >/dev/null 2>&1 || { echo "neither Lmod nor Tcl modules are installed"; exit 69; }
for name; do
    module load "$name" || { echo "module load $name failed"; exit 69; }
    case ":$LOADEDMODULES:" in *":$name:"*) ;; *) echo "module $name does not exist"; exit 69;; esac
done
env -0 >&3
"""
_SPACK = """
exec 3>&1 1>&2
[ -z "${SPACK_ROOT:-}" ] || . "$SPACK_ROOT/share/spack/setup-env.sh"
type spack >/dev/null 2>&1 || { echo "spack is not on the PATH, and SPACK_ROOT is not set"; exit 69; }
loaded=$(spack load --sh "$1") || { echo "spack load $1 failed"; exit 69; }
eval "$loaded"
env -0 >&3
"""


@dataclass(frozen=True)
class Ready:
    """How to run a program of one software here."""

    prefix: tuple[str, ...] = ()  # words before the program, that enter a container within this task
    # Options of an srun that starts the program in a container itself; then without the prefix.
    step: tuple[str, ...] = ()
    interpreter: str = "python3"  # its Python
    program: str = ""  # the program itself, where the site names it and not its folder
    problem: Problem | None = None  # why it cannot be run here

    @property
    def contained(self) -> bool:
        """Whether it lies in a container, so that it cannot be looked for here."""
        return bool(self.prefix or self.step)


def ordered(folder: Path) -> dict[str, Any]:
    """Return the software that a job was ordered to use, by name."""
    try:
        found = json.loads((folder / FILE).read_bytes())
    except FileNotFoundError:
        return {}
    return found if isinstance(found, dict) else {}


def origin(source: dict[str, Any]) -> tuple[str, Any]:
    """Return where software comes from: the kind of place, and the place."""
    said = source.get("from", "package")
    if not isinstance(said, dict):
        return "package", None
    return next((kind, said[kind]) for kind in ("module", "path", "spack", "container") if said.get(kind))


def enter(folder: Path, name: str, *, gpus: bool = False, more: Iterable[Path] = ()) -> Ready:
    """Make this process and its children see one software, and return how to run its programs.

    Args:
        folder: the job's.
        name: as the site's `software` has it.
        gpus: whether a container needs the GPUs.
        more: folders that a container needs besides the run and this package.
    """
    return use(ordered(folder).get(name), name, folder, gpus=gpus, more=more)


def use(
    source: dict[str, Any] | None, name: str, folder: Path, *, gpus: bool = False, more: Iterable[Path] = ()
) -> Ready:
    """Do what `enter` does, with the source at hand; None: what the system has."""
    if source is None:
        return Ready()
    kind, place = origin(source)
    if kind == "container":
        seen = [*mounts(folder), *map(str, more), *source.get("pythonpath", ())]
        return _container(name, source, seen, gpus=gpus)
    problem = _load(kind, place)
    if problem is None:
        _prepend("LD_LIBRARY_PATH", source.get("libraries", ()))
        _prepend("PYTHONPATH", source.get("pythonpath", ()))
        interpreter = source.get("python") or (place if kind == "path" else None) or "python3"
        program = place if kind == "path" and Path(place).is_file() else ""
        return Ready(interpreter=interpreter, program=program)
    return Ready(problem=unusable(name, source, problem))


def mounts(folder: Path) -> list[str]:
    """Return what a container must see: the run's folder, this package and the programs beside it."""
    from shakedown.records.program import SOURCE  # not needed by `look`, which runs without this package

    return [str(folder.parent.parent), str(SOURCE)]


def pyxis_options(image: str, seen: Iterable[str]) -> list[str]:
    """Return the options of srun that start its tasks in a container (NVIDIA pyxis, README)."""
    paths = ",".join(f"{path}:{path}" for path in seen)
    return [f"--container-image={image}", f"--container-mounts={paths}", "--no-container-mount-home"]


def apptainer_words(image: str, seen: Iterable[str], *, gpus: bool) -> list[str]:
    """Return the words that run a command in a container (Apptainer user guide, exec)."""
    return ["apptainer", "exec", *(["--nv"] if gpus else []), *_binds(seen), image]


def _binds(seen: Iterable[str]) -> list[str]:
    return [word for path in seen for word in ("--bind", path)]


def _container(name: str, source: dict[str, Any], seen: list[str], *, gpus: bool) -> Ready:
    said = source["from"]
    image, interpreter = said["container"], source.get("python") or "python3"
    if said.get("runtime") == "pyxis":
        if not _has_pyxis():
            return Ready(problem=unusable(name, source, _NO_PYXIS))
        step = pyxis_options(image, seen)
        node = os.environ.get("SLURMD_NODENAME", "")
        alone = ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--mpi=none"]
        alone += ["--cpu-bind=none", "--input=none", *step]
        return Ready(prefix=tuple(alone), step=tuple(step), interpreter=interpreter)
    if why := _no_apptainer(image):
        return Ready(problem=unusable(name, source, why))
    words = apptainer_words(image, seen, gpus=gpus)
    return Ready(prefix=tuple(words), interpreter=interpreter)


def _no_apptainer(image: str) -> str:
    if shutil.which("apptainer") is None:
        return "apptainer is not installed"
    return f"there is no image {image}" if image.startswith("/") and not Path(image).exists() else ""


def _has_pyxis() -> bool:
    try:
        said = subprocess.run(
            ["srun", "--help"], capture_output=True, timeout=30, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"--container-image" in said.stdout


def _load(kind: str, place: Any) -> str | None:  # noqa: ANN401  (a path, or names of modules)
    """Change this process's environment; return why it cannot be."""
    if kind == "path":
        return _path(Path(place))
    if kind == "package":
        return None
    script, values = (_MODULES, place) if kind == "module" else (_SPACK, [place])
    try:
        done = subprocess.run(
            ["bash", "--norc", "-c", script, "shakedown", *values],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_LOAD_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{kind} {' '.join(values)} was not loaded within {_LOAD_S:g} s"
    except OSError as error:
        return f"bash: {error.strerror}"
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        # Spack's first error is the reason; what follows lists packages and says how to choose one.
        errors = [line for line in said if kind == "spack" and line.startswith("==> Error: ")]
        return ": ".join([said[-1], *(line.removeprefix("==> Error: ") for line in errors[:1])])[:300]
    pairs = (entry.partition(b"=") for entry in done.stdout.split(b"\0") if b"=" in entry)
    os.environ.update({os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs})
    return None


def _path(path: Path) -> str | None:
    if not path.exists():
        return f"{path} does not exist"
    if path.is_file():
        if not os.access(path, os.X_OK):
            return f"{path} cannot be executed"
        _prepend("PATH", [str(path.parent)])
        return None
    whole = (path / "bin").is_dir()
    _prepend("PATH", [str(path / "bin") if whole else str(path)])
    libraries = [path / name for name in ("lib64", "lib") if whole and (path / name).is_dir()]
    _prepend("LD_LIBRARY_PATH", map(str, libraries))
    return None


def _prepend(variable: str, folders: Iterable[str]) -> None:
    words = [*folders, *filter(None, [os.environ.get(variable, "")])]
    if words:
        os.environ[variable] = os.pathsep.join(words)


def unusable(name: str, source: dict[str, Any], why: str) -> Problem:
    """Return the problem of a software that cannot be run here: node, place, reason and fix."""
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    kind, place = origin(source)
    where = f"{kind} {' '.join(place) if isinstance(place, list) else place}" if place else kind
    fix = f"make it available on {node}, or change software.{name}"
    return {"kind": "not-run", "message": f"{node}: {name} from {where}: {why}; {fix}"[:2000]}


def lacking(source: dict[str, Any]) -> str:
    """Return why a software cannot be used on this node, or nothing; what only a job can tell is nothing.

    Its programs are not run: that takes a minute for some, and is the config stage's.
    """
    kind, place = origin(source)
    if kind != "container":
        return _load(kind, place) or ""
    said = source["from"]
    if said.get("runtime") == "pyxis":
        return "" if shutil.which("srun") is None or _has_pyxis() else _NO_PYXIS
    return _no_apptainer(said["container"])


def look(sources: dict[str, dict[str, Any]]) -> int:
    """Print why each software cannot be used here; one must not see what another does to the environment."""
    found, kept = {}, dict(os.environ)
    for name, source in sources.items():
        found[name] = lacking(source)
        os.environ.clear()
        os.environ.update(kept)
    print(json.dumps(found))
    return 0


def main(argv: list[str]) -> int:
    """Run a command with a software, or look what there is."""
    if len(argv) == 2 and argv[0] == "look":
        return look(json.loads(argv[1]))
    if len(argv) < 4 or argv[2] != "--":
        print("usage: python -m shakedown.onnode.software FOLDER NAME -- COMMAND...", file=sys.stderr)
        return 2
    ready = enter(Path(argv[0]), argv[1])
    if ready.problem:
        print(ready.problem["message"], file=sys.stderr)
        return 69
    command = argv[3:]
    try:
        os.execvp(command[0], command)  # noqa: S606  (no shell is meant)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    if globals().get("__package__"):  # not read from standard input, where nothing else of us is
        from shakedown.records.program import ended

        ended(lambda: main(sys.argv[1:]))
    sys.exit(main(sys.argv[1:]))
