"""The audit's list against the tests: every figure that it calls judged fails one of them when worsened."""

import re
from pathlib import Path

import pytest
from generator.audit import publications
from test_pt import FIGURES, PT
from test_systems import FOUR, WORSENED, WORSENED_ALONE, deciding, figures, planned

from shakedown.references.files import load_profile

ROOT = Path(__file__).parents[2]


# Rows that no shipped plan holds a cell to, and the test of this folder that fails a cell by them.
BY_A_TEST_OF_ITS_OWN = {
    "tolly-lora-drops": "test_systems.py::test_one_packet_dropped_while_tolly_trains_fails"
}


def worsened() -> set[str]:
    """Rows each of which some test of this folder worsens alone."""
    rows = {row for name in WORSENED_ALONE for row in deciding(name)}
    rows |= {entry.id for name in WORSENED for entry in figures(name)}
    return rows | {entry.id for entry in FIGURES} | BY_A_TEST_OF_ITS_OWN.keys()


@pytest.mark.parametrize("name", FOUR)
def test_every_figure_that_the_audit_calls_judged_is_worsened(name):
    """Catches: a published figure called judged that no test ever worsens, so that its gate may pass all."""
    (audited,) = (one for one in publications() if one.profile == name)
    profile = load_profile(name)
    told = {entry.id for entry in profile.entries if not entry.gates}
    judged = {row for item in audited.items if item.state == "judged" for row in item.rows_of(profile)}
    assert judged - told
    assert judged - told - worsened() == set()
    plans = [planned(system) for system in (*FOUR, *WORSENED)]
    measured = {i.reference for plan in plans for i in plan.items if i.required and not i.not_run}
    assert judged - told - measured - BY_A_TEST_OF_ITS_OWN.keys() == set(), "no shipped plan measures it"


def test_what_no_shipped_plan_measures_is_called_offered():
    """Catches: a figure called judged, or a whole profile, that no shipped inventory has in its plan."""
    shipped = (*FOUR, *WORSENED, "gpu_host", "lab_gpus")
    measured = {i.reference for name in shipped for i in planned(name).items if i.required and not i.not_run}
    measured |= BY_A_TEST_OF_ITS_OWN.keys()
    wrong = [
        item.item
        for one in publications()
        for item in one.items
        if (rows := set(item.rows_of(load_profile(one.profile))))
        and (
            (item.state == "judged" and not (rows & measured and set(item.figures) <= measured))
            or (item.state == "offered" and rows & measured)
        )
    ]
    assert not wrong


@pytest.mark.parametrize("row", BY_A_TEST_OF_ITS_OWN)
def test_an_exception_has_its_test_and_no_cell(row):
    """Catches: an exception whose test is gone, or that is planned by now and worsened like the rest."""
    file, _, test = BY_A_TEST_OF_ITS_OWN[row].partition("::")
    assert re.search(rf"^def {test}\(", (Path(__file__).parent / file).read_text(), re.MULTILINE)
    plans = [planned(name) for name in (*FOUR, *WORSENED)]
    assert not [
        i for plan in plans for i in plan.items if i.reference == row and i.required and not i.not_run
    ]


def test_the_fourth_is_worsened_by_its_own_tests():
    """Catches: a system of the four that falls out of all three lists."""
    assert {*FOUR} <= {*WORSENED, *WORSENED_ALONE, PT}
