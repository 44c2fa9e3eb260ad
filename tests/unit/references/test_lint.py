"""Every lint rule with a planted fault, through the real command: file, line and exit status 1."""

import json

import pytest

from shakedown.references import files as references_io
from tests.kit import records
from tests.kit.cases import cases

READ, ROW4, ROW8 = "- id: example-read", "id: example-4b", "{size_bytes: 8"
# (text in the example, what replaces it, rule, text on the line that must be named, words in the message)
FAULTS = {
    "value above physics": ("value: 390", "value: 393", "unreachable", READ, "above what physics allows"),
    "gate above physics": ("tolerance: 0.02", "limit: 395", "unreachable", READ, "gate 395"),
    "half rate passes": ("tolerance: 0.02", "tolerance: 0.5", "too-loose", READ, "link at half rate"),
    "a slow path passes": ("tolerance: 0.1\n", "limit: 80\n", "too-loose", ROW4, "double the time"),
    "gate of zero": ("tolerance: 0.02", "limit: 0", "too-loose", READ, "link at half rate"),
    "name twice": ("id: example-8b", "id: example-4b", "duplicate", ROW8, "name taken"),
    "scope twice": ("{size_bytes: 8}", "{size_bytes: 4}", "duplicate", "value: 41", "same test, metric and"),
    "row restates its group": ("value: 41", "value: 41, unit: s", "duplicate", ROW8, "unit is given"),
    "row restates a scope": (
        "{size_bytes: 8}",
        "{size_bytes: 8, nodes: 4}",
        "duplicate",
        ROW8,
        "scope nodes",
    ),
    "computed of nothing": (
        "kind: measured\n    source: nobody\n  - stage",
        "kind: computed\n    source: nobody\n  - stage",
        "invalid",
        READ,
        "kind computed needs printed",
    ),
    "no unit": ("    unit: Gb/s\n", "", "missing-field", READ, "unit is missing"),
    "no source": ("    source: nobody\n  - stage", "  - stage", "missing-field", READ, "source is missing"),
    "no source of rows": (
        "    source: nobody\n    rows",
        "    rows",
        "missing-field",
        ROW4,
        "source is missing",
    ),
    "no audit": ("audit: invented\n", "", "missing-field", "schema", "audit is missing"),
    "unknown field": (
        "tolerance: 0.02",
        "tolerence: 0.02",
        "unknown-field",
        "tolerence",
        "key tolerence, did you mean tolerance",
    ),
    "unknown field in a row": (
        "value: 41",
        "value: 41, valu: 1",
        "unknown-field",
        ROW8,
        "key valu, did you mean value",
    ),
    "unknown field in the header": (
        "audit:",
        "by: me\naudit:",
        "unknown-field",
        "by: me",
        "header: unknown key by",
    ),
    "unit of another dimension": ("unit: Gb/s", "unit: us", "unit-mismatch", READ, "has no meaning in us"),
    "unknown unit": ("unit: Gb/s", "unit: Gbit/sec", "invalid", "unit: Gbit", "Gbit/sec"),
    "size as text": ("{size_bytes: 8}", '{size_bytes: "8"}', "invalid", "value: 41", "not int"),
    "size as yes or no": ("{size_bytes: 8}", "{size_bytes: true}", "invalid", "value: 41", "not int"),
    "unknown scope key": ("{nodes: 2}", "{node: 2}", "invalid", ROW4, "'node'"),
    "empty range": (
        "{size_bytes: 8}",
        "{size_bytes: {min: 9, max: 8}}",
        "invalid",
        "min: 9",
        "holds nothing",
    ),
    "value as text": ("value: 390", 'value: "390"', "invalid", "value: ", "'390'"),
    "value not a number": ("value: 390", "value: .nan", "invalid", "value: ", "finite"),
    "tolerance and limit": (
        "tolerance: 0.02",
        "tolerance: 0.02\n    limit: 9",
        "invalid",
        READ,
        "exactly one",
    ),
    "neither of them": ("    tolerance: 0.02\n", "", "invalid", READ, "exactly one"),
    "unknown formula": ("formula: roce_payload", "formula: eval", "invalid", "ceiling", "'eval'"),
    "unknown parameter": ("rdma_mtu_bytes: 4096}", "mtu: 4096}", "unknown-field", "ceiling", "mtu"),
    "impossible formula": ("rdma_mtu_bytes: 4096", "rdma_mtu_bytes: 9000", "invalid", READ, "9000"),
    "parameter as text": ("speed_gbps: 400,", 'speed_gbps: "400",', "invalid", "ceiling", "valid number"),
    "no gate, no reason": ("value: 41", "value: 41, gates: false", "unexplained", ROW8, "needs a note"),
    "unknown kind": ("kind: measured", "kind: guess", "invalid", "kind: guess", "guess"),
    "wrong schema": ("schema: 1", "schema: 2", "invalid", "schema", "schema must be 1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_named_with_file_and_line(fault, write, shakedown):
    """A reference with any of these faults would pass everything, fail everything, or never be used."""
    old, new, rule, at, words = FAULTS[fault]
    path = write(old, new)
    line = next(n for n, text in enumerate(path.read_text().splitlines(), start=1) if at in text)
    status, out, _ = shakedown("references", "lint", path)
    assert status == 1
    expected = [t for t in out.splitlines() if t.startswith(f"{path}:{line}: {rule}: ") and words in t]
    assert expected, out


def test_units_that_differ_within_a_metric(write, shakedown):
    """The same metric in us and in ms: one of the two would be compared with the other's numbers."""
    path = write("      - {id: example-8b, scope: {size_bytes: 8}, value: 41}\n", "")
    path.write_text(
        path.read_text()
        + "  - {id: example-ms, stage: collective, test: nccl_all_reduce, metric: time, scope: {nodes: 4},\n"
        "     value: 1, tolerance: 0.1, unit: ms, better: lower, kind: measured, source: nobody}\n"
    )
    status, out, _ = shakedown("references", "lint", path)
    assert status == 1
    assert "unit-mismatch: example-ms" in out


def test_the_example_without_faults_is_clean(write, shakedown):
    """A rule that fires on everything would pass the tests above."""
    status, out, _ = shakedown("references", "lint", write())
    assert (status, out) == (0, "")


def test_one_of_several_links_at_half_rate(write, shakedown):
    """The sum of 8 links loses only 1/16 to a link at half rate: a gate of 7 % lets it pass, 5 % does not."""
    links = "rdma_mtu_bytes: 4096, links: 8}"
    for tolerance, status in ((0.07, 1), (0.05, 0)):
        path = write("rdma_mtu_bytes: 4096}", links)
        text = path.read_text().replace("value: 390", "value: 3130")
        path.write_text(text.replace("tolerance: 0.02", f"tolerance: {tolerance}"))
        got, out, _ = shakedown("references", "lint", path)
        assert got == status, out
        assert status == 0 or "too-loose" in out


def test_ring_with_one_nic_at_half_rate(write, shakedown):
    """In a ring one slow NIC of 8 halves the whole: a gate at 190 GB/s would call that good."""
    path = write()
    text = path.read_text()
    text = text.replace("formula: roce_payload,", "formula: ring_busbw, nics_per_node: 8,").replace(
        "Gb/s", "GB/s"
    )
    path.write_text(text.replace("tolerance: 0.02", "limit: 190"))
    status, out, _ = shakedown("references", "lint", path)
    assert status == 1
    assert "too-loose" in out and "(196.07" in out


def test_a_value_far_below_its_link_is_held_to_half_of_itself(write, shakedown):
    """A GPU-bound 20 Gb/s on a 400G link: half the link says nothing, half the value does."""
    for tolerance, status in ((0.4, 0), (0.5, 1)):
        path = write("value: 390", "value: 20")
        path.write_text(path.read_text().replace("tolerance: 0.02", f"tolerance: {tolerance}"))
        assert shakedown("references", "lint", path)[0] == status


def plan_using(*names):
    """A plan whose only item uses the first name."""
    entries = references_io.load_catalogue([names[0]]).entries
    entry = entries[names[1]]
    return records.plan(
        references=[entry.reference()],
        run="r1",
        nodes=("n1",),
        items=(
            {
                "stage": entry.stage,
                "test": entry.test,
                "metric": entry.metric,
                "unit": entry.unit,
                "better": entry.better,
                "nodes": (("n1",),),
                "reference": entry.id,
            },
        ),
    )


def test_references_that_a_plan_never_uses(write, shakedown, tmp_path):
    """An entry whose scope never fits decides nothing, and nobody notices."""
    path = write()
    plan = tmp_path / "plan.json"
    plan.write_text(plan_using(path, "example-read").model_dump_json(by_alias=True))
    status, out, _ = shakedown("references", "lint", path, "--plan", plan)
    assert status == 1
    assert "never-matched: example-4b" in out and "never-matched: example-8b" in out
    assert "example-read" not in out


LISTED = "outside_plan:\n  - {rows: [example-4b, example-8b], why: an example}\nreferences:\n"


def test_a_reason_stands_for_a_row_that_no_plan_uses(write, shakedown, tmp_path):
    """Catches: a list of reasons that is not read, with which every such row stays a finding."""
    path = write("references:\n", LISTED)
    plan = tmp_path / "plan.json"
    plan.write_text(plan_using(path, "example-read").model_dump_json(by_alias=True))
    status, out, _ = shakedown("references", "lint", path, "--plan", plan)
    assert (status, out) == (0, "")


@cases(
    "rows, words",
    ("[exmaple-4b]", "stale: outside_plan: no reference of this profile is named exmaple-4b"),
    ("[other-*]", "stale: outside_plan: no reference of this profile is named other-*"),
    ("[example-4b, example-4b]", "stale: outside_plan: example-4b is listed twice"),
)
def test_a_reason_for_nothing_is_named(write, shakedown, rows, words):
    """Catches: a row that was renamed, and whose reason now excuses nothing."""
    path = write("references:\n", LISTED.replace("[example-4b, example-8b]", rows))
    status, out, _ = shakedown("references", "lint", path)
    assert (status, words in out) == (1, True)


@cases(
    "entry", "{rows: [example-4b]}", "{why: for nothing}", "{item: power, why: unread}", '{rows: [], why: ""}'
)
def test_a_published_item_without_reason_or_figure_is_refused(write, shakedown, entry):
    """Catches: an item that is listed as published, with no figure or no reason."""
    path = write("references:\n", f"outside_plan:\n  - {entry}\nreferences:\n")
    status, out, _ = shakedown("references", "lint", path)
    assert status == 1 and "outside_plan" in out


def test_a_broken_plan_is_bad_input(write, shakedown, tmp_path):
    """A plan that cannot be read must not pass for one that uses everything."""
    plan = tmp_path / "plan.json"
    plan.write_text('{"schema": 1}')
    status, _, err = shakedown("references", "lint", write(), "--plan", plan)
    assert status == 2
    assert str(plan) in err and err.count("\n") == 1


@cases(
    "content, line, words",
    (b"a: [1", 1, "not YAML"),
    (b"a: 1\nb: 2\na: 3\n", 3, "twice"),
    (b"a: &x [1]\nb: *x\n", 1, "anchor"),
    (b"a: !!python/object/apply:os.system [id]\n", 1, "tag"),
    (b"- 1\n", 1, "mapping"),
    (b"1: 2\n", 1, "not text"),
    (b"a: \xff\n", None, "UTF-8"),
    (b"a: 1\n---\nb: 2\n", 2, "not YAML"),
    (b"", 1, "mapping"),
    (b"a: " + b"[" * 50 + b"]" * 50, 1, "deep"),
)
def test_hostile_files_are_refused_in_one_line(tmp_path, shakedown, content, line, words):
    """Code in a tag, an alias that multiplies, a key that hides another: none may reach the catalogue."""
    path = tmp_path / "hostile.yml"
    path.write_bytes(content)
    status, _, err = shakedown("references", "lint", path)
    assert status == 2
    assert err.startswith(f"shakedown: {path}:" + (f"{line}: " if line else " "))
    assert words in err and err.count("\n") == 1


def test_json(write, shakedown, tmp_path):
    """Machines read the findings too."""
    status, out, _ = shakedown("references", "lint", write("value: 390", "value: 393"), "--json")
    assert status == 1
    assert [(f["rule"], f["file"]) for f in json.loads(out)] == [
        ("unreachable", str(tmp_path / "example.yml"))
    ]


def test_all_shipped_profiles_are_clean(shakedown):
    """What is shipped must obey its own rules."""
    status, out, err = shakedown("references", "lint")
    assert (status, out) == (0, "")
    assert err.startswith(f"{len(references_io.profile_names())} profiles, ")
