"""Where a site has the programs that measure (`software:` in group_vars/all), one way for all of them.

Everything here ends up in argv or in a script of fixed words, so module names, paths, specs and images are of
closed sets of characters; nothing of it can begin with a dash or hold a quote, a blank or a variable.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from shakedown.intent.rules import Problem
from shakedown.records.base import PlainPath, Record, shape

KEY = "software"
# What a site can say where it is. loadgen: PyTorch with LoadGen, for inference; without it PyTorch's.
ProgramName = Literal[
    "perftest", "openmpi", "nccl_tests", "nvbandwidth", "pytorch", "loadgen", "stream", "fio"
]


def _several(given: Any) -> Any:  # noqa: ANN401  (as the file has it; pydantic checks what comes of it)
    return (given,) if isinstance(given, str) else given


def _plain(path: str) -> str:
    if ".." in path.split("/"):
        raise ValueError("a path without .., please: it must mean the same on every node")
    return path


_PART = r"[A-Za-z0-9][A-Za-z0-9_.+-]*"
_MODULE = shape(rf"^{_PART}(/{_PART}){{1,4}}$", "NAME/VERSION", "openmpi/4.1.6", max_length=200)
ModuleName = Annotated[str, _MODULE]
AbsolutePath = Annotated[PlainPath, AfterValidator(_plain)]
_SPACK = shape(
    r"^[A-Za-z0-9/][A-Za-z0-9_.+~@%/=^:-]*$",
    "the spec of an installed Spack package, without blanks or quotes",
    "openmpi@4.1.6%gcc@13.2.0",
    max_length=200,
)
SpackSpec = Annotated[str, _SPACK]
_IMAGE = shape(
    r"^(/[A-Za-z0-9_./+-]+|((docker|oras|library)://)?[A-Za-z0-9][A-Za-z0-9_.#@:/+-]*)$",
    "an image's absolute path, or its name in a registry",
    "docker://nvcr.io/nvidia/pytorch:24.10-py3",
    max_length=400,
)
Image = Annotated[str, _IMAGE]


class Origin(Record):
    """Exactly one place; `package`, for what the node's own system has, is a word instead of this."""

    # NAME/VERSION, loaded in this order: a module may need others before it.
    module: Annotated[tuple[ModuleName, ...], BeforeValidator(_several)] | None = Field(
        default=None, min_length=1, max_length=8
    )
    # The folder of the programs, or one that holds bin/ and lib/; a program itself; PyTorch's interpreter.
    path: AbsolutePath | None = None
    spack: SpackSpec | None = None  # spec of an installed package
    # For Apptainer a .sif by path or docker://..., for pyxis what `srun --container-image` takes.
    container: Image | None = None
    runtime: Literal["apptainer", "pyxis"] | None = None  # of a container; none: apptainer

    @model_validator(mode="after")
    def _one_place(self) -> Origin:
        given = [key for key in ("module", "path", "spack", "container") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                f"{' and '.join(given) or 'nothing'} given; give one of module, path, spack and container, "
                "or the word package"
            )
        if self.runtime and self.container is None:
            raise ValueError("runtime is of a container; give container, or leave runtime out")
        relative = self.container and not self.container.startswith("/") and "://" not in self.container
        if self.runtime != "pyxis" and relative:
            raise ValueError(
                "Apptainer would look for this image in the folder that it is called from; give its path, or "
                "docker://, oras:// or library:// before it"
            )
        return self


class SoftwareSource(Record):
    """Where one program comes from, and what it needs besides."""

    from_: Literal["package"] | Origin = Field(alias="from")
    # An interpreter, for PyTorch: inside the container, or of the module. None: python3.
    python: AbsolutePath | None = None
    pythonpath: tuple[AbsolutePath, ...] = Field(default=(), max_length=16)  # folders that it must look into
    # Folders of libraries that the programs do not find by themselves.
    libraries: tuple[AbsolutePath, ...] = Field(default=(), max_length=16)

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @property
    def interpreter(self) -> str:
        """The Python of this software: named, or the path itself, or what PATH then finds."""
        path = self.from_.path if isinstance(self.from_, Origin) else None
        return self.python or path or "python3"

    @property
    def contained(self) -> bool:
        """Whether it is in a container."""
        return isinstance(self.from_, Origin) and self.from_.container is not None


Sources = dict[ProgramName, SoftwareSource]

# Keys of earlier releases, and what says the same now.
_ACCEPTANCE = {
    ("lora", "python"): "software.pytorch: {from: {path: INTERPRETER}}",
    ("lora", "container"): "software.pytorch: {from: {container: IMAGE}}",
    ("torch", "python"): "software.pytorch: {from: {path: INTERPRETER}}",
    ("interconnect", "python"): "software.pytorch: {from: {path: INTERPRETER}}",
    ("interconnect", "pythonpath"): "software.pytorch: {pythonpath: [FOLDER]}",
    ("inference", "python"): "software.loadgen: {from: {path: INTERPRETER}}, or software.pytorch",
    ("inference", "pythonpath"): "software.loadgen: {pythonpath: [FOLDER]}",
    ("gpu_node", "program"): "software.nvbandwidth: {from: {path: PROGRAM}}",
    ("stream", "program"): "software.stream: {from: {path: PROGRAM}}",
}


def retired(acceptance: object) -> list[Problem]:
    """Return the keys of an acceptance that say where software is: another block says it now."""
    found = []
    for (section, key), instead in _ACCEPTANCE.items():
        asked = acceptance.get(section) if isinstance(acceptance, dict) else None
        for number, entry in enumerate(asked if isinstance(asked, list) else [asked]):
            if isinstance(entry, dict) and key in entry:
                at = ("acceptance", section, *((number,) if isinstance(asked, list) else ()), key)
                what = f"{'.'.join(map(str, at))} has gone: one block says where all software is"
                found.append(Problem(at, what, f"say {instead} (group_vars/all/software.yml)"))
    return found
