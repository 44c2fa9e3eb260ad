"""A run that was ordered, for all that is forged of it."""

import shutil
from pathlib import Path

import pytest

from tests.kit.archive import unpack
from tests.unit.evidence.ordered import World, make_world

LAB_RUN = Path(__file__).parents[2] / "runs/lab_healthy/run.tar.xz"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The world of which each forger gets a copy."""
    folder = tmp_path_factory.mktemp("world")
    run = folder / "20261120T132502Z"
    unpack(LAB_RUN, run)
    with pytest.MonkeyPatch.context() as patch:
        yield make_world(folder, run, patch)


@pytest.fixture
def world(original, tmp_path) -> World:
    """A world of its own, with machines of its own."""
    world = original.copy(tmp_path / original.run.name)
    world.machines = {}
    for name, machine in original.machines.items():
        shutil.copytree(machine.root, tmp_path / name)
        world.machines[name] = type(machine)(str(tmp_path / name))
    return world
