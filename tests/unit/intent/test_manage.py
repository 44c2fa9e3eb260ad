"""What a site says of whose it is, and other words that a plan passed without a look."""

from datetime import date
from typing import Any

import pytest

from shakedown.benchmarks.planning import site_of
from shakedown.intent.places import refuse_impossible_date
from shakedown.records.errors import BadInput
from tests.kit.site import WHERE, document, hosts


def refusal(**variables: Any) -> str:
    """Return what is said of a site with these variables."""
    inventory = document()
    for host in hosts(inventory):
        host.update(variables)
    with pytest.raises(BadInput) as refused:
        site_of(inventory, WHERE)
    return str(refused.value)


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"manage": True}, "manage True: must be keys with values (KEY: VALUE)"),
        ({"manage": {"slurms": True}}, "manage: unknown key 'slurms' -- use slurm"),
        ({"manage": {"slurm": "no"}}, "manage.slurm 'no': must be true or false"),
        ({"shared_stage_path": "stage"}, "shared_stage_path 'stage': must be an absolute path of letters, "),
        ({"shared_stage_path": "/scratch/a b"}, "shared_stage_path '/scratch/a b': must be an absolute path"),
        ({"slurm": {"partition": "a b"}}, "slurm.partition 'a b': must be one name as Slurm has it"),
        (
            {"software": {"perftest": {"from": {"module": "ompi"}}}},
            "'ompi': must be NAME/VERSION, such as openmpi/4.1.6",
        ),
        (
            {"software": {"perftest": {"from": {"spack": "openmpi @4"}}}},
            "must be the spec of an installed Spack package, without blanks or quotes, such as openmpi@4",
        ),
        ({"waivers": {"name": "x"}}, "waivers: must be a list"),
        ({"slurm": {"partition": ["a", "b"]}}, "slurm.partition: must be one text"),
        (
            {"software": {"perftest": {"from": {"module": []}}}},
            "software.perftest.from.module: must not be empty",
        ),
        ({"software": {"perftest": {"from": "packages"}}}, "software.perftest.from 'packages': "),
    ],
)
def test_words_that_mean_something_else_are_refused(variables, says):
    """Catches: a slip that leaves the default in force, is found by a role halfway, or is told in Python."""
    said = refusal(**variables)
    assert says in said, said
    assert "tuple" not in said and "function-" not in said and "literal[" not in said


def test_what_the_playbooks_take_is_taken():
    """Catches: a block of the shipped sites that is refused."""
    inventory = document()
    for host in hosts(inventory):
        host.update({"manage": {"slurm": True, "hosts": False}, "shared_stage_path": "/shared/shakedown"})
    assert site_of(inventory, WHERE).nics


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("waivers:\n  - {name: a, expires: 2026-02-30}\n", 2),
        ("waivers:\n  - name: a\n    expires: 2026-13-01  # 2026-99-99\n", 3),
        ('a: "2026-02-30"\nb: x-2026-02-30\nc: 2026-02-28\n', None),
    ],
)
def test_a_day_that_there_is_not_is_named_with_its_line(tmp_path, text, line):
    """Catches: a waiver until 30 February, refused without saying where it stands."""
    file = tmp_path / "group_vars/all/waivers.yml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    if line is None:
        refuse_impossible_date(tmp_path)
        assert date(2026, 2, 28)
        return
    with pytest.raises(BadInput) as refused:
        refuse_impossible_date(tmp_path)
    assert str(refused.value).startswith(f"{file}:{line}: 2026-")
    assert "is no day" in str(refused.value)
