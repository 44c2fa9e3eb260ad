"""What `shakedown order` tells whoever signs a plan that somebody else has made."""

import pytest

from tests.kit.files import edited
from tests.kit.key import NEEDS_SSH_KEYGEN, make_key, make_signers

pytestmark = [
    pytest.mark.slow,  # all shipped profiles are read, twice
    NEEDS_SSH_KEYGEN,
]


def order_of(run, folder):
    """The command by which a customer with a key of a node orders a run."""
    known = make_signers(folder / "known", {name: make_key(folder, name) for name in ("n1", "n2")})
    words = ("--key", folder / "n1", "--hosts", known, "--user", "1", "--output", folder / "order.json")
    return "order", run, *words


def test_what_a_plan_eases_is_told_before_it_is_signed(recorded_run, tmp_path, shakedown):
    """Catches: a customer who signs loosened gates, a waiver and tests that nobody runs, told of none."""
    run = recorded_run("lab_healthy")
    words = order_of(run, tmp_path)
    _, before, _ = shakedown(*words)
    with edited(run / "plan.json") as plan:
        plan["references"]["lab-ib-write-bw"]["limit"] = 0.001
        for item in plan["items"]:
            if item["test"] == "ib_send_lat":
                item.update(required=False)
            if item["test"] == "ib_read_bw":
                item.update(required=False, not_run="the vendor\u0027s tool is missing")
        waiver = {"name": "w", "cells": "fabric/ib_write_bw/bandwidth/*", "reason": "known to be slow"}
        plan["waivers"] = [{**waiver, "owner": "the vendor", "expires": "2027-01-01"}]
    status, out, error = shakedown(*words)
    assert status == 0, error
    for told in (
        "gate of its own: lab-ib-write-bw: gate loosened, from ",
        "not required: fabric ib_send_lat ",
        "not to be run: fabric ib_read_bw bandwidth, ",
        "the vendor's tool is missing",
        "waived until 2027-01-01: fabric/ib_write_bw/bandwidth/*, by the vendor: known to be slow",
    ):
        assert told in out, out
        assert told not in before
    assert out.splitlines()[-1].startswith("ordered: ")


def test_a_shipped_profile_that_lets_everything_pass_is_told(recorded_run, tmp_path, shakedown):
    """Catches: a customer who signs an emulated lab's gates, or weaker jobs, and is told nothing."""
    run = recorded_run("lab_healthy")
    words = order_of(run, tmp_path)
    told = (
        "at least 0.005 Gb/s, 0.0051 % of its ceiling 98.014; the strictest that is shipped: at least 193.087"
    )
    assert f"fabric ib_write_bw bandwidth: {told}" in shakedown(*words)[1]
    with edited(run / "jobs.json") as jobs:
        for job in jobs["jobs"]:
            for operation in job["settings"].get("operations", ()):
                operation["iterations"] = 5
    out = shakedown(*words)[1]
    assert "pfc.priorities=3" in out and "iterations=5; mode=full" in out and "iterations=300" not in out
