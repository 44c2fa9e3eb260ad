"""Rails that are measured all at once: a number counts only if it was reached beside busy neighbours."""

import pytest

from shakedown.benchmarks.perftest.mesh.schedule import LESS_LOAD, drop_superseded

pytestmark = pytest.mark.slow  # drivers that wait for each other by the clock

PAIR = "n1,n2"


def found(local, direction="forward", at_once="all"):
    """Records of one slot: rail -> in order of attempts."""
    records: dict[str, list] = {}
    for r in sorted(local.records(), key=lambda r: r.attempt):
        if (r.direction, r.params["rails_at_once"]) == (direction, at_once):
            records.setdefault(r.rail, []).append(r)
    return records


@pytest.mark.parametrize("times", [2, 6])
def test_for_want_of_a_clock_all_rails_run_again(mesh, times):
    """Catches: one rail measured again alone, and its number passed for one beside busy neighbours; or
    fewer tries for all rails together than each of them had alone, so that a busy host has no result."""
    local = mesh(2, rails=2, rails_at_once=["all"])
    local.faults = [{"node": "n1", "side": "client", "device": "rxe0", "fault": "noclock", "times": times}]
    assert local.run() == {"n1": 0, "n2": 0}
    assert all([r.attempt for r in rail] == [1] for rail in found(local).values())
    for rail, had_number in (("rail0", False), ("rail1", True)):
        aside = sorted(local.out.glob(f"*{rail}.forward*noclock*.txt"))
        assert len(aside) == times  # kept, with its number if it had one
        assert all(("97.25" in file.read_text()) is had_number for file in aside)
    assert local.journal("n1", "round")[0]["repeated"] == times * 2
    assert not list(local.out.glob("*reverse*noclock*"))


def test_tries_for_want_of_a_clock_do_not_outlast_the_job(mesh):
    """Catches: tries of 20 s each until Slurm ends the job, and no counter is read that would name a loss."""
    local = mesh(2, rails=2, rails_at_once=["all"])
    local.faults = [
        {"node": "n1", "side": "client", "device": "rxe0", "fault": "noclock", "times": 99},
        {"node": "n1", "side": "client", "device": "rxe1", "fault": "slow"},
    ]
    local.run()
    # Each takes a second and a little, and a client may take three.
    assert local.journal("n1", "round")[0]["repeated"] == 2 * 2
    [record] = found(local)["rail0"]
    assert record.problem.message.endswith(", 3 times: n1 is too busy")


def test_a_try_in_which_a_rail_failed_is_not_repeated_for_the_clock_of_another(mesh):
    """Catches: a crash set aside and forgotten, because its neighbour had no clock in the same try."""
    local = mesh(2, rails=2, rails_at_once=["all"])
    local.faults = [
        {"node": "n1", "side": "client", "device": "rxe0", "fault": "noclock", "times": 1},
        {"node": "n1", "side": "client", "device": "rxe1", "fault": "crash"},
    ]
    assert local.run()["n1"] == 3
    slot = found(local)
    assert [r.exit_code for r in slot["rail1"]] == [-11]
    assert "CPU's clock" in slot["rail0"][0].problem.message and len(slot["rail0"]) == 1
    assert slot["rail0"][0].problem.message.endswith(", once: n1 is too busy")


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_a_number_beside_a_rail_that_failed_is_marked(mesh, fault):
    """Catches: a pass under less load than planned, because a neighbour had crashed or hung."""
    local = mesh(2, rails=3, rails_at_once=["one", "all"])
    local.faults = [{"node": "n1", "side": "client", "device": "rxe1", "fault": fault}]
    assert local.run()["n1"] == 3
    slot = found(local)
    assert slot["rail1"][0].problem.kind == {"crash": "other", "hang": "killed"}[fault]
    for rail in ("rail0", "rail2"):
        [record] = slot[rail]
        assert (record.exit_code, record.problem.kind) == (0, "environment")
        assert record.problem.message.startswith(f"{LESS_LOAD}: rail1 failed")
    # Alone and the other way round nothing was wrong with them.
    assert found(local, at_once="one")["rail0"][0].problem is None
    assert found(local, "reverse")["rail0"][0].problem is None


def test_where_a_rail_cannot_be_measured_none_is_and_the_repair_is_no_retry(mesh):
    """Catches: a pass under less load than planned, because a neighbour's port was down all the time; and a
    repair that can never pass because the others had used up an attempt."""
    local = mesh(2, rails=2, rails_at_once=["one", "all"])
    state = local.sysfs("n2") / "class/infiniband/rxe1/ports/1/state"
    state.write_text("1: DOWN\n")
    assert local.run() == {"n1": 3, "n2": 3}
    slot = found(local)
    down = "n2 rail1: rxe1 port 1 is 1: DOWN"
    assert (slot["rail1"][0].problem.kind, slot["rail1"][0].problem.message) == ("setup", down)
    neighbour = slot["rail0"][0]
    assert (neighbour.exit_code, neighbour.problem.kind) == (None, "environment")
    assert neighbour.problem.message == f"{LESS_LOAD}: {down}"
    assert found(local, at_once="one")["rail0"][0].problem is None
    assert local.coverage().cells == (2, 8), local.coverage().why
    state.write_text("4: ACTIVE\n")
    assert local.run() == {"n1": 0, "n2": 0}
    counting = drop_superseded(local.records())
    assert len(counting) == 8
    assert all((r.attempt, r.exit_code, r.problem) == (1, 0, None) for r in counting)


def test_a_server_that_does_not_listen_keeps_its_neighbours_from_running(mesh):
    """Catches: a pass under less load than planned, because a neighbour's server did not come up."""
    # Within which the stand-in for perftest must also say its version, on a busy machine.
    local = mesh(2, rails=2, rails_at_once=["all"], start_timeout_s=4)
    local.faults = [{"node": "n2", "side": "server", "device": "rxe0", "fault": "deaf"}]
    assert local.run()["n1"] == 3
    slot = found(local)
    assert slot["rail0"][0].problem.kind == "setup" and slot["rail0"][0].exit_code is None
    assert slot["rail1"][0].problem.kind == "environment" and slot["rail1"][0].exit_code is None
    assert "n2 does not listen" in slot["rail1"][0].problem.message
    assert not list(local.out.glob("*.forward.*all.txt"))
    assert all(r[0].problem is None for r in found(local, "reverse").values())


def test_a_second_start_measures_all_rails_if_one_is_missing(mesh):
    """Catches: the missing rail measured alone at a second start, as if beside busy neighbours; a neighbour's
    second number that is hidden, or that takes the place of its first."""
    local = mesh(2, rails=2, rails_at_once=["all"])
    local.faults = [{"node": "n1", "side": "client", "device": "rxe0", "fault": "noclock", "times": 99}]
    assert local.run()["n1"] == 3
    before = {file: file.read_bytes() for file in local.out.glob("*.txt")}
    assert [r.problem for r in found(local)["rail1"]] == [None]
    local.faults = []
    assert local.run() == {"n1": 0, "n2": 0}, found(local)
    slot = found(local)
    assert [r.attempt for r in slot["rail0"]] == [r.attempt for r in slot["rail1"]] == [1, 2]
    assert len({r.file for rail in slot.values() for r in rail}) == 4
    assert all(file.read_bytes() == content for file, content in before.items())
    # What was whole is left alone.
    assert all(len(records) == 1 for records in found(local, "reverse").values())
    assert local.journal("n1", "end")[1]["skipped"] == 2
