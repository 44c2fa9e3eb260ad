"""Which reference a cell gets: the most specific one, and never none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shakedown.references.catalogue import (
    AmbiguousReference,
    Catalogue,
    MissingReference,
    Profile,
    ReferenceEntry,
    Span,
)
from tests.kit.cases import cases
from tests.kit.refusal import refused


def entry(name, *, test="nccl_all_reduce", metric="busbw", value=100.0, **more):
    """An entry in which only what the test is about is given."""
    fields = {"id": name, "stage": "collective", "test": test, "metric": metric, "value": value}
    fields |= {"tolerance": 0.05, "unit": "GB/s", "better": "higher", "kind": "measured", "source": "nobody"}
    return ReferenceEntry.model_validate(fields | more)


def catalogue(*entries):
    """A catalogue of one profile."""
    return Catalogue([Profile(profile="p", title="t", published="x", audit="a", entries=entries)])


def match(found, **scope):
    """The busbw reference of a cell."""
    return found.match(test="nccl_all_reduce", metric="busbw", scope=scope)


def test_the_most_specific_entry_wins():
    """A general entry that wins over a special one would hold 8 nodes to the figure of one."""
    found = catalogue(
        entry("any"), entry("gpu", scope={"gpu": "H100"}), entry("both", scope={"gpu": "H100", "nodes": 8})
    )
    assert match(found).id == "any"
    assert match(found, gpu="A100").id == "any"
    assert match(found, gpu="H100", nodes=2).id == "gpu"
    assert match(found, gpu="H100", nodes=8, size_bytes=8).id == "both"


def test_two_entries_that_fit_equally_well_are_an_error():
    """Taking the first, or the one with more keys, would make the gate depend on the order in a file."""
    found = catalogue(entry("gpu", scope={"gpu": "H100", "gpus": 8}), entry("nodes", scope={"nodes": 1}))
    with pytest.raises(AmbiguousReference, match="gpu, nodes fit equally well"):
        match(found, gpu="H100", gpus=8, nodes=1)
    assert match(found, nodes=1).id == "nodes"


def test_no_entry_is_an_error_that_names_the_nearest():
    """Peers count a missing threshold as 0, and everything passes."""
    found = catalogue(entry("gpu", scope={"gpu": "H100", "size_bytes": 1024}))
    with pytest.raises(MissingReference, match="the nearest, gpu, needs size_bytes=1024"):
        match(found, gpu="H100", size_bytes=2048)
    with pytest.raises(MissingReference, match="add one for this test and metric"):
        found.match(test="nccl_alltoall", metric="busbw", scope={})


@pytest.mark.parametrize("size", ["1024", 1024.0, True, None])
def test_a_value_of_another_type_is_refused_and_not_merely_unmatched(size):
    """Peers' first bug: sizes as text never match the thresholds' whole numbers, and everything passes."""
    found = catalogue(entry("size", scope={"size_bytes": 1024}), entry("any"))
    refused("size_bytes", match, found, size_bytes=size)


def test_an_unknown_scope_key_is_refused():
    """`size` for `size_bytes` would silently fall back to the general entry."""
    refused("'size' is not known", match, catalogue(entry("any")), size=1024)


def test_an_entry_that_must_not_gate_is_no_reference_for_a_required_cell():
    """An extrapolated figure that decides a cell is a verdict without a measurement behind it."""
    found = catalogue(entry("guess", gates=False, note="extrapolated"))
    with pytest.raises(MissingReference, match="extrapolated"):
        match(found)
    assert found.match(test="nccl_all_reduce", metric="busbw", scope={}, required=False).id == "guess"
    assert not found.find(test="nccl_all_reduce", metric="busbw", scope={}).gates


def test_a_name_in_two_profiles_is_refused():
    """The plan knows references by name: one of the two would silently replace the other."""
    one = Profile(profile="p", title="t", published="x", audit="a", entries=(entry("same"),))
    refused("exists already", Catalogue, [one, one.model_copy(update={"profile": "q"})])


def test_a_formula_is_resolved_in_the_unit_of_the_entry():
    """A ceiling in Gb/s beside a value in GB/s would let eight times too much pass as possible."""
    formula = {"formula": "roce_payload", "speed_gbps": 400, "rdma_mtu_bytes": 4096}
    reference = entry("r", value=48.7, ceiling=formula).reference()
    assert reference.ceiling == pytest.approx(49.02, abs=0.005)
    assert reference.ceiling_source == "roce_payload speed_gbps=400 rdma_mtu_bytes=4096"
    physical = entry("p", value=formula, ceiling=formula, kind="physical").reference()
    assert physical.value == reference.ceiling
    assert physical.gate == pytest.approx(0.95 * 49.02, abs=0.005)


def test_ranges():
    """A range includes its ends and is wider than a single size."""
    found = catalogue(
        entry("large", scope={"size_bytes": {"min": 1024}}),
        entry("middle", scope={"size_bytes": {"min": 1024, "max": 4096}}),
        entry("exact", scope={"size_bytes": 2048}),
    )
    assert [match(found, size_bytes=n).id for n in (1024, 2048, 4096, 4097)] == [
        "middle",
        "exact",
        "middle",
        "large",
    ]
    with pytest.raises(MissingReference):
        match(found, size_bytes=1023)


SCOPES = st.dictionaries(
    st.sampled_from(["nodes", "gpus", "size_bytes"]),
    st.one_of(st.integers(1, 3), st.just({"min": 1, "max": 2})),
)


@given(st.lists(SCOPES, min_size=1, max_size=6), st.randoms())
def test_the_answer_does_not_depend_on_the_order(scopes, random):
    """Whatever the entries and their order: the same entry, or the same kind of error."""
    entries = [entry(f"e{i}", scope=scope) for i, scope in enumerate(scopes)]
    query = {"nodes": 1, "gpus": 2, "size_bytes": 3}

    def answer(some):
        try:
            return match(catalogue(*some), **query).id
        except (MissingReference, AmbiguousReference) as error:
            return type(error)

    first = answer(entries)
    random.shuffle(entries)
    assert answer(entries) == first


@given(st.integers(), st.integers(), st.integers())
def test_narrower_is_never_mutual(a, b, n):
    """Two entries each narrower than the other would both win."""
    low, high = sorted((a, b))
    span, one = Span(min=low, max=high), n
    first, second = entry("a", scope={"nodes": span.model_dump()}), entry("b", scope={"nodes": one})
    assert not (first.narrower_than(second) and second.narrower_than(first))
    assert span.covers(one) == (low <= n <= high)


@cases(
    "formula, gb_per_s, with_one_link_at_half_rate",
    ({"formula": "roce_payload", "speed_gbps": 400, "rdma_mtu_bytes": 4096, "links": 8}, 392.15, 367.64),
    (
        {
            "formula": "pcie_payload",
            "generation": 5,
            "width": 16,
            "max_payload_bytes": 256,
            "transfer": "d2h",
        },
        57.61,
        28.81,
    ),
    ({"formula": "pcie_raw", "generation": 4, "width": 16, "links": 2}, 63.02, 47.26),
    ({"formula": "link", "gb_per_s": 450, "links": 2}, 900, 675),
    (
        {"formula": "ring_busbw", "nics_per_node": 8, "speed_gbps": 400, "rdma_mtu_bytes": 1024},
        370.34,
        185.17,
    ),
    (
        {"formula": "hierarchical_busbw", "nics_per_node": 8, "speed_gbps": 400, "rdma_mtu_bytes": 4096}
        | {"ranks": 64, "ranks_per_node": 8},
        441.17,
        220.58,
    ),
    (
        {"formula": "alltoall_busbw", "speed_gbps": 400, "rdma_mtu_bytes": 4096}
        | {"ranks": 32, "ranks_per_node": 8},
        63.32,
        31.66,
    ),
    ({"formula": "nvls_busbw", "nvlink_gb_per_s": 450, "ranks": 8}, 700, 350),
)
def test_every_formula(formula, gb_per_s, with_one_link_at_half_rate):
    """A parameter in the wrong place, or the fault taken from the wrong rule (a sum is no ring)."""
    ceiling = entry("f", value=1.0, ceiling=formula).ceiling
    assert ceiling.gbps() / 8 == pytest.approx(gb_per_s, abs=0.006)
    assert ceiling.degraded_gbps() / 8 == pytest.approx(with_one_link_at_half_rate, abs=0.006)
