"""What a plan of a large site may cost, and what side-by-side jobs and all rails first must save."""

import pytest

import bench_plan
import bench_plan_time
from large_site import MESH, write_site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_thousand_nodes_are_planned_in_half_a_minute(tmp_path):
    """Catches: planning that grows with the number of pairs, or a plan refused for its size."""
    site = write_site(tmp_path, 1024, {"config": {}, "profiles": ["roce_switches"], "perftest": MESH})
    cpu_s, _wall_s, peak_mib, plan_mb = bench_plan.plan(tmp_path, site)
    # CPU time: wall time tells of whatever else the machine does.
    assert cpu_s <= 30, f"{cpu_s:.1f} s of CPU time"
    assert peak_mib <= 2048, f"{peak_mib:.0f} MiB"
    assert plan_mb < 256, f"plan.json has {plan_mb:.0f} MB"


def test_all_rails_first_and_side_by_side_take_a_quarter_of_the_time():
    """Catches: the table in docs/how-to/plan-a-run.md that the planner does not hold any more."""
    sites = dict(bench_plan_time.SITES)
    before, after = (
        bench_plan_time.expectation(sites[name])
        for name in ("mesh, first results decide", "all rails first, first decide")
    )
    for key in ("expected_s", "limit_s"):
        assert 0 < sum(stage[key] for stage in after) <= sum(stage[key] for stage in before) / 4, key
