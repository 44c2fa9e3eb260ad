"""Fixtures of the mesh's tests."""

import pytest

from tests.unit.benchmarks.perftest.local_mesh import LocalMesh, spec_data


@pytest.fixture
def mesh(tmp_path):
    """Return a maker of local meshes."""

    def make(nodes: int, rails: int = 1, **changes: object) -> LocalMesh:
        return LocalMesh(tmp_path, spec_data(nodes, rails, **changes))

    return make
