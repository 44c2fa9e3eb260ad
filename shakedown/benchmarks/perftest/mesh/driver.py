"""The driver, one process a node.

    srun ... python -m shakedown.benchmarks.perftest.mesh.driver SPEC.json OUTDIR

Start it with `srun --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 --no-kill` inside an allocation that
was also made with `--no-kill`, so that Slurm lets the rest go on when a node dies, and under a time limit.
SPEC.json is described in spec.py, what it leaves in OUTDIR in store.py. The
node's name is $SLURMD_NODENAME. A second start with the same OUTDIR measures only what is missing; it must be
of the same specification and the same perftest as what is there.

Exit status: 0 every cell of this node's pairs is measured, 2 bad input, 3 something is missing, and why is
noted.
"""

from __future__ import annotations

import hashlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from shakedown.benchmarks.perftest.mesh.pair import Buffers, Host, PairWork, RoundTally, Watch, unwatched
from shakedown.benchmarks.perftest.mesh.perftest import SYSFS, Unusable, find_device, perftest_versions
from shakedown.benchmarks.perftest.mesh.rendezvous import Agent, Meetings
from shakedown.benchmarks.perftest.mesh.schedule import round_count, rounds_of, slots_of
from shakedown.benchmarks.perftest.mesh.spec import Spec, parse_spec
from shakedown.benchmarks.perftest.mesh.store import Again, NodeFiles
from shakedown.benchmarks.perftest.mesh.wire import PeerLost
from shakedown.onnode.software import enter
from shakedown.records.program import ended
from shakedown.records.reading import BadInput, ExitStatus, loads, read_plain
from shakedown.run.ownership import SECRET

MAX_CLOCK_SKEW_S = 1.0  # clocks further apart than this make time stamps of two nodes misleading


def main(arguments: list[str], *, sysfs: Path = SYSFS) -> int:
    """Run the driver of this node and return its exit status."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        if len(arguments) != 2:
            raise BadInput(
                "two arguments are needed",
                fix="python -m shakedown.benchmarks.perftest.mesh.driver SPEC.json OUTDIR",
            )
        spec, digest = read_spec(Path(arguments[0]))
        me = os.environ.get("SLURMD_NODENAME", "")
        if me not in spec.nodes:
            raise BadInput(
                f"this node, SLURMD_NODENAME={me!r}, is not in the mesh",
                fix="start it with srun on the nodes of the specification",
                file=arguments[0],
            )
        return drive(spec, digest, me, Path(arguments[1]), sysfs)
    except BadInput as refused:
        print(f"shakedown mesh: {refused}", file=sys.stderr)
        return ExitStatus.BAD_INPUT


def beside_mesh(
    name: str, key: str, arguments: list[str], act: Callable[[Path, Spec, str, str, Mapping[str, Any]], int]
) -> int:
    """Run this node's part of a job whose FOLDER/spec.json is a mesh's specification with `key` beside it.

    `act` gets the folder, the specification, its digest, this node, and what `key` holds. Returns the exit
    status.
    """
    if len(arguments) != 1:
        print(f"usage: python -m shakedown.benchmarks.{name}.job FOLDER", file=sys.stderr)
        return ExitStatus.BAD_INPUT
    signal.signal(signal.SIGTERM, _terminate)
    folder, me = Path(arguments[0]), os.environ.get("SLURMD_NODENAME", "")
    file = folder / "spec.json"
    try:
        spec, digest, more = read_spec_and(file, key)
        if me not in spec.nodes:
            what = f"this node, SLURMD_NODENAME={me!r}, is not among those that send"
            raise BadInput(what, fix="start it with srun", file=file)
        return act(folder, spec, digest, me, more)
    except BadInput as refused:
        print(f"shakedown {name}: {refused}", file=sys.stderr)
        return ExitStatus.BAD_INPUT


def read_spec(path: Path) -> tuple[Spec, str]:
    """Return the specification in a file and the digest of its bytes; raises BadInput."""
    spec, digest, _ = read_spec_and(path, None)
    return spec, digest


def read_spec_and(path: Path, key: str | None) -> tuple[Spec, str, Mapping[str, Any]]:
    """Return the specification, the digest, and what one more key of the file holds for the job that drives.

    That is empty where the key is missing or holds no object. Raises BadInput.
    """
    raw = read_plain(path, "give the file of the plan")
    if raw is None:
        raise BadInput("does not exist", fix="give the file of the plan", file=path)
    try:
        data = loads(raw)
    except ValueError as error:
        line = getattr(error, "lineno", None)
        raise BadInput("not JSON", fix="give the file of the plan", file=path, line=line) from error
    beside = data.pop(key, None) if isinstance(data, dict) and key else None
    digest = hashlib.sha256(raw).hexdigest()
    return parse_spec(data, str(path)), digest, beside if isinstance(beside, dict) else {}


def session_of(folder: Path, digest: str) -> str:
    """Return what tells this run's drivers from all others: a driver of another job or plan is a stranger.

    Whoever can guess it can speak for a node. So it is made of the secret that the submit host has left for
    this job's user alone; where somebody started the drivers by hand there may be none.
    """
    step = f"{os.environ.get('SLURM_JOB_ID', '')}.{os.environ.get('SLURM_STEP_ID', '')}"
    secret = read_plain(folder / SECRET, "start the job again") or b""
    return hashlib.sha256(f"{digest}:{step}:".encode() + secret).hexdigest()[:32]


def drive(
    spec: Spec,
    digest: str,
    me: str,
    folder: Path,
    sysfs: Path,
    *,
    store: NodeFiles | None = None,
    watch: Watch = unwatched,
    buffers: Buffers | None = None,
) -> int:
    """Go through all rounds of node `me`; raises BadInput.

    Args:
        spec, digest: what is measured, and the digest of its text.
        me: this node.
        folder, sysfs: where outputs go, and where devices are found.
        store: how records are written, where not as perftest's own.
        watch: what goes on around everything that this node serves.
        buffers: the memories that operations name, as this node has them.
    """
    store = store or NodeFiles(folder, me)
    host, gids = _look_around(spec, me, sysfs, folder, buffers or Buffers())
    store.refuse_other_start(digest, host.versions)
    session = session_of(folder, digest)
    agent = Agent(spec.nodes[me], spec.control_port, session)
    try:
        store.journal(
            "start",
            spec_sha256=digest,
            # Whoever reads the journal must not learn it.
            session=hashlib.sha256(session.encode()).hexdigest()[:16],
            rounds=round_count(spec),
            perftest=dict(host.versions),
            gid_index=gids,
            problems=dict(host.problems),
        )
        meetings = Meetings(spec, me, session, agent, _longest_round_s(spec))
        total = _all_rounds(spec, host, store, agent, meetings, watch)
        if spec.remeasure is not None:
            _rounds_again(spec, Again(spec, spec.remeasure, store, me), host, store, agent, meetings)
        store.journal("end", measured=total.measured, failed=total.failed, skipped=total.skipped)
    finally:
        agent.close()
    print(f"{me}: {total.measured} measured, {total.failed} not, {total.skipped} already were", flush=True)
    return ExitStatus.INCOMPLETE if total.failed else ExitStatus.PASS


def _all_rounds(
    spec: Spec, host: Host, store: NodeFiles, agent: Agent, meetings: Meetings, watch: Watch
) -> RoundTally:
    total = RoundTally()
    for index, pairs in enumerate(rounds_of(spec)):
        agent.enter_round(index)
        pair = next((p for p in pairs if host.name in p), None)
        if pair is None:
            store.journal("idle", round=index)
            continue
        tally = _one_round(PairWork(spec, host, store, pair, index, watch), meetings)
        total.measured += tally.measured
        total.failed += tally.failed
        total.skipped += tally.skipped
    # A partner that still waits for this node in an earlier round learns that it has moved on.
    agent.enter_round(round_count(spec))
    return total


def _rounds_again(
    spec: Spec, again: Again, host: Host, store: NodeFiles, agent: Agent, meetings: Meetings
) -> None:
    """Meet every partner again, as often as cells may be measured; a pair without doubts goes on at once.

    Nothing that was measured is taken back, and the exit status stays that of the first results.
    """
    rule, rounds = spec.remeasure, round_count(spec)
    for turn in range(rule.at_most if rule else 0):
        for place, pairs in enumerate(rounds_of(spec)):
            index = (turn + 1) * rounds + place
            agent.enter_round(index)
            pair = next((p for p in pairs if host.name in p), None)
            if pair is not None:
                _one_round(PairWork(spec, host, store, pair, index, again=again), meetings)
        agent.enter_round((turn + 2) * rounds)


def _one_round(work: PairWork, meetings: Meetings) -> RoundTally:
    partner = work.pair[1] if work.host.name == work.pair[0] else work.pair[0]
    begin = met = time.monotonic()
    skew_s: float | None = None
    try:
        conversation, theirs = meetings.meet(work.pair, work.index, work.hello())
    except PeerLost as lost:
        work.give_up(str(lost))
        _drop(work, meetings, partner, str(lost))
    else:
        met = time.monotonic()
        # The second node of a pair answers at once; the first has waited, so its time is old.
        said = theirs.get("time")
        if work.host.name == work.pair[0] and isinstance(said, float) and math.isfinite(said):
            skew_s = abs(time.time() - said)
        try:
            work.run(conversation, theirs)
        except PeerLost as lost:
            _drop(work, meetings, partner, str(lost))
        finally:
            conversation.close()
    wall_s = time.monotonic() - begin
    if work.again is not None:
        if work.tally.measured or work.tally.failed:
            done = {"measured": work.tally.measured, "failed": work.tally.failed}
            work.store.journal(
                "again", round=work.index, pair=list(work.pair), wall_s=round(wall_s, 3), **done
            )
        return work.tally
    if skew_s is not None and skew_s > MAX_CLOCK_SKEW_S:
        work.store.journal("clock-skew", round=work.index, partner=partner, seconds=round(skew_s, 3))
    work.store.journal(
        "round",
        round=work.index,
        pair=list(work.pair),
        measured=work.tally.measured,
        failed=work.tally.failed,
        skipped=work.tally.skipped,
        repeated=work.tally.repeated,
        meeting_s=round(met - begin, 3),
        starting_s=round(work.tally.starting_s, 3),
        measuring_s=round(work.tally.measuring_s, 3),
        ending_s=round(work.tally.ending_s, 3),
        wall_s=round(wall_s, 3),
    )
    return work.tally


def _drop(work: PairWork, meetings: Meetings, partner: str, reason: str) -> None:
    meetings.accuse(partner)
    work.store.journal("dropped", round=work.index, dropped=partner, reason=reason)
    print(f"{work.host.name}: round {work.index}: {partner} dropped: {reason}", file=sys.stderr, flush=True)


def _look_around(
    spec: Spec, me: str, sysfs: Path, folder: Path, buffers: Buffers
) -> tuple[Host, dict[str, int]]:
    devices, problems = {}, buffers.problems()
    ready = enter(folder, "perftest")
    for rail, nic in spec.nodes[me].rails.items():
        try:
            devices[rail] = find_device(nic, spec.gid_index, sysfs)
        except Unusable as reason:
            problems[rail] = str(reason)
        # Pairs with this node are not measured, and say why; all others are.
        if ready.problem:
            problems[rail] = ready.problem["message"]
    gids = {rail: device.gid_index for rail, device in devices.items()}
    versions = {} if ready.problem else perftest_versions(spec, ready.prefix)
    return Host(me, devices, problems, versions, ready.prefix, buffers), gids


def _longest_round_s(spec: Spec) -> float:
    return len(slots_of(spec)) * (spec.start_timeout_s + spec.timeout_s + spec.lost_after_s)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    # SystemExit runs the `finally` clauses, which end the perftest processes of this driver.
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    ended(lambda: main(sys.argv[1:]))
