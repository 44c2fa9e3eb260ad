"""A waiver covers what a person signed for, is told first, and never covers data that are lost or wrong."""

import pytest

from shakedown.commands.verdict import exit_status
from shakedown.judge.verdict import judge
from shakedown.plan.scope import WantedScope
from shakedown.plan.waivers import with_waivers
from shakedown.records.base import Outcome
from shakedown.records.plan import Waiver
from shakedown.records.reading import BadInput
from tests.kit.cases import cases
from tests.kit.site import document, hosts, plan_site
from tests.unit.plan.test_scope import measured

SLOW = "fabric/ib_write_bw/bandwidth/n1,n2/rail1/*"


def waiver(**changes: object) -> dict[str, object]:
    """Return a waiver of a slow pair."""
    return {
        "name": "slow-n2",
        "cells": SLOW,
        "reason": "cable on order",
        "owner": "A. Person",
        "expires": "2026-03-01",
        "ticket": "OPS-7",
        **changes,
    }


def plan_with(*waivers: dict[str, object], created: str = "2026-01-01T00:00:00Z", **wanted: object):
    """Plan three nodes with these waivers."""
    inventory = document(3)
    for host in hosts(inventory):
        host["waivers"] = list(waivers)
    part = WantedScope(**wanted) if wanted else None
    plan, _ = plan_site(inventory, created=created, wanted=part)
    return plan


def test_a_waived_failure_is_told_first_and_counted():
    """Catches: a waived failure that fails the run, or that a PASS does not tell."""
    plan = plan_with(waiver())
    verdict = judge(plan, measured(plan, worse="/ib_write_bw/bandwidth/n1,n2/rail1/"))
    assert verdict.outcome is Outcome.PASS
    assert exit_status(verdict.outcome) == 0
    waived = verdict.outcomes[Outcome.WAIVED]
    assert waived == sum(c.outcome is Outcome.WAIVED for c in verdict.cells) > 0
    assert verdict.reason.startswith(
        f"with 1 waiver for {waived} failed cells (slow-n2 of A. Person until 2026-03-01): all "
    )
    assert f"the other {verdict.coverage.planned - waived} lie within" in verdict.reason
    assert verdict.cells[0].reason.endswith(
        "(slow-n2, waived by A. Person until 2026-03-01, OPS-7: cable on order)"
    )


def test_what_it_does_not_cover_still_fails():
    """Catches: a waiver that passes another rail, another pair, or a whole run."""
    plan = plan_with(waiver())
    for other in ("/bandwidth/n1,n3/rail1/", "/bandwidth/n1,n2/rail0/"):
        verdict = judge(plan, measured(plan, worse=other))
        assert verdict.outcome is Outcome.FAIL
        assert verdict.outcomes[Outcome.WAIVED] == 0


def test_what_was_not_measured_is_not_waived():
    """Catches: a waiver that makes up for a test which did not run."""
    plan = plan_with(waiver())
    verdict = judge(plan, [m for m in measured(plan) if not (m.rail == "rail1" and m.nodes == ("n1", "n2"))])
    assert verdict.outcome is Outcome.NOT_RUN


def test_a_waiver_that_nothing_needs_is_no_word():
    """Catches: a PASS without any failure that reads as if it rested on a waiver."""
    plan = plan_with(waiver())
    assert judge(plan, measured(plan)).reason.startswith("all ")


@cases(
    "changes, said",
    ({"expires": "2025-12-31"}, "waiver slow-n2 of A. Person expired on 2025-12-31"),
    ({"cells": "fabric/ib_write_bw/bandwidth/n1,n9/*"}, "waiver slow-n2 covers no planned cell"),
    ({"cells": "collective/mpi_allreduce/wrong/*"}, "covers mpi_allreduce wrong, which is about data"),
    (
        {"cells": "fabric/ib_write_bw/counter.rdma.out_of_seq_request/n1/rail0/*"},
        "covers ib_write_bw counter.rdma.out_of_seq_request, which is about data",
    ),
    ({"owner": ""}, "waivers.0.owner"),
    ({"owner": None}, "waivers.0.owner"),
    ({"cells": "*"}, "waivers.0.cells"),
    ({"cells": "fabric/*/bandwidth/*"}, "waivers.0.cells"),
    ({"cells": "fabric/ib_write_bw/bandwidth/"}, "waivers.0.cells"),
    ({"expires": "soon"}, "waivers.0.expires"),
    ({"until": "2026-03-01"}, "unknown key 'until'"),
)
def test_what_cannot_be_waived_is_refused(changes, said):
    """Catches: a waiver that has expired, has no owner, or is for everything or for lost data."""
    with pytest.raises(BadInput) as refused:
        plan_with(waiver(**changes))
    assert said in str(refused.value)


def test_a_refusal_names_file_and_line(tmp_path):
    """Catches: an expired waiver that is told without its place, or with that of another file or waiver."""
    file = tmp_path / "group_vars/all/accepted.yml"
    file.parent.mkdir(parents=True)
    file.write_text("# signed for\nwaivers:\n  - name: fast-n1\n  - name: slow-n2\n    expires: 2025-12-31\n")
    rows = [waiver(), waiver(expires="2025-12-31")]
    old = [
        Waiver.model_validate(row | {"name": name})
        for row, name in zip(rows, ("fast-n1", "slow-n2"), strict=True)
    ]
    with pytest.raises(BadInput) as refused:
        with_waivers(plan_with(), old, whole=True, inventory=tmp_path)
    assert str(refused.value).startswith(
        f"{file}:4: waiver slow-n2 of A. Person expired on 2025-12-31 -- take it"
    )


def test_it_holds_to_the_last_day_and_two_need_two_names():
    """Catches: a waiver that ends a day early; two of one name, of which one is not told."""
    assert plan_with(waiver(), created="2026-03-01T23:59:59Z").waivers
    with pytest.raises(BadInput, match="two waivers are named slow-n2"):
        plan_with(waiver(), waiver())


def test_a_part_of_the_site_takes_those_that_it_needs():
    """Catches: a plan of some nodes that is refused for a waiver of another node."""
    assert plan_with(waiver(), nodes=("n3",), partners=1).waivers == ()
    assert [w.name for w in plan_with(waiver(), nodes=("n2",)).waivers] == ["slow-n2"]


@cases(
    "pattern, nodes, covered",
    ("*n1*/rail1/*", "n1,n2", True),
    ("*n1*/rail1/*", "n2,n1", True),
    ("*n1*/rail1/*", "n10,n2", False),
    ("*n1*/rail1/*", "n2,n11", False),
    ("n1*", "n1,n2", True),
    ("n1*", "n10,n2", False),
    ("n1?,n2/*", "n10,n2", True),
    ("*n1,n2/rail?/*", "gn1,n2", True),
    ("n*1,n2/*", "n21,n2", False),
    ("rack1-*", "rack1-n3,n2", True),
)
def test_a_number_is_no_part_of_a_longer_one(pattern, nodes, covered):
    """Catches: a waiver of n1 that passes the failures of n10 to n19 as well."""
    signed = Waiver.model_validate(waiver(cells=f"fabric/ib_write_bw/bandwidth/{pattern}"))
    assert signed.covers(f"fabric/ib_write_bw/bandwidth/{nodes}/rail1/forward/size_bytes=8") is covered


@cases(
    "changes, worse, value",
    ({"expires": "2025-12-31"}, "/ib_write_bw/bandwidth/n1,n2/rail1/", 0.0),
    ({"cells": "collective/mpi_allreduce/wrong/*"}, "/mpi_allreduce/wrong/", 3.0),
)
def test_a_waiver_that_was_written_into_a_plan_is_held_to_the_same_rules(changes, worse, value):
    """Catches: a verdict that takes from an edited plan what no planner lets into one."""
    plan = plan_with()
    plan = plan.model_copy(update={"waivers": (Waiver.model_validate(waiver(**changes)),)})
    bad = [
        m.model_copy(update={"value": value, "samples": (value,) * len(m.samples)}) if worse in m.cell else m
        for m in measured(plan)
    ]
    verdict = judge(plan, bad)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.outcomes[Outcome.WAIVED] == 0
