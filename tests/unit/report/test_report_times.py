"""What a stage was expected to take stands beside what it took, and what is not covered is told."""

from dataclasses import replace

from synthetic_run import judged, make_plan

from shakedown.records.base import Stage
from shakedown.records.plan import Expectation, NotCovered, StageTime
from shakedown.report import html
from shakedown.report import html as markdown


def expecting(stage: Stage) -> StageTime:
    """Expect an hour at most of a stage, half of it if all goes well."""
    return StageTime(
        stage=stage,
        jobs=2,
        at_once=1,
        expected_s=1800,
        limit_s=3600,
        expected_node_s=7200,
        limit_node_s=14400,
    )


def test_the_report_puts_the_expectation_beside_what_it_took() -> None:
    """Catches: an expectation that only the plan knows, a stage's time taken from another stage."""
    plan = make_plan(4, 2)
    before = html.build(judged(plan))
    assert (before.times, before.not_covered) == ((), ())
    left_out = NotCovered(what="uplinks <b>", why="not read", cells=672, key="leaf_ports")
    plan = plan.model_copy(
        update={
            "expectation": Expectation(stages=(expecting(Stage.FABRIC), expecting(Stage.CONFIG)), max_jobs=8),
            "not_covered": (left_out,),
        }
    )
    source = judged(plan)
    source = replace(source, measurements=[m for m in source.measurements if m.stage is not Stage.CONFIG])
    shown = html.build(source)
    fabric, config = shown.times
    starts = sorted(m.started for m in source.measurements if m.stage is Stage.FABRIC and m.started)
    assert fabric.took_s is not None
    assert fabric.took_s > 0
    assert len(starts) > 1
    assert config.took_s is None  # nothing of it was measured
    assert (fabric.expected_s, fabric.limit_s, fabric.node_hours) == (1800, 3600, 2.0)
    text = markdown.render_markdown(shown)
    assert "| fabric | 30 min 00 s | 1 h 00 min | 2.0 | " in text
    assert "| config | 30 min 00 s | 1 h 00 min | 2.0 | – |" in text
    page = html.render_html(shown, {})
    assert "uplinks &lt;b&gt; (672 cells): not read" in page
    assert "Expected 1 h 00 min, measured for" in page
