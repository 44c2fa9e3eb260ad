"""Begin, resume and end a run on the submit host."""

import argparse
import hashlib
import json
import shutil
from pathlib import Path
from shlex import quote

from shakedown.plan.jobs import Jobs, job_and_attempt
from shakedown.records.base import Stage
from shakedown.records.program import ended, status_of
from shakedown.records.reading import BadInput, read_bytes, read_record
from shakedown.run.folder import JOBS, PLAN, RAW
from shakedown.run.lock import RunLock, parse_holder
from shakedown.slurm.client import Slurm
from shakedown.slurm.under_way import Asked, clear, decide, left_of

# Outside raw/, which is evidence: one empty file for each whole stage, one when the outputs were fetched.
STAGES, FETCHED = "stages", "fetched"


def whole_stages(run: Path) -> list[Stage]:
    """Return the stages after which the switches were read."""
    return [stage for stage in Stage if (run / STAGES / f"{stage.value}.done").is_file()]


def make_ready(run: Path, digests: dict[str, str]) -> list[Stage]:
    """Clear what is not whole of a run that was broken off, and return the stages that are kept.

    Args:
        run: its folder on the submit host.
        digests: SHA-256 of the controller's `plan.json` and `jobs.json`.

    Raises BadInput: there is nothing to go on with, or the plan is another one.
    """
    if not (run / STAGES).is_dir() or not (run / JOBS).is_file():
        raise BadInput(
            "holds no run that was broken off", fix="start it without run_under_way=resume", file=run
        )
    if (run / STAGES / FETCHED).exists():
        raise BadInput(
            "is complete, and its outputs were fetched",
            fix="judge it with shakedown verdict, or give another run_id",
            file=run,
        )
    for name in (PLAN, JOBS):
        if hashlib.sha256(read_bytes(run / name)).hexdigest() != digests[name]:
            raise BadInput(
                "is not the controller's, so this is another run",
                fix=f"give another run_id, or remove the one here with rm -r {quote(str(run))}",
                file=run / name,
            )
    whole = whole_stages(run)
    broken = {job.name: job.stage for job in read_record(run / JOBS, Jobs).jobs if job.stage not in whole}
    for folder in (run / RAW).iterdir():
        if job_and_attempt(folder.name)[0] in broken and folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
    for stage in set(broken.values()):
        (run / RAW / f"reframe.{stage.value}.txt").unlink(missing_ok=True)
    return whole


# Every call prints JSON, or refuses with one line on stderr and exit status 2.


def take(options: argparse.Namespace) -> dict[str, object]:
    """Take the lock for a run. Raises BadInput with the sentence that says why not."""
    home: Path = options.home
    mine = parse_holder(options.holder)
    lock, slurm = RunLock(home), Slurm()
    run, said, kept = home / "runs" / mine.run, "", []
    with lock.mutex():
        other = lock.holder()
        if (other.ticket if other else "") != options.seen:
            raise BadInput("has changed hands at this moment", fix="start again", file=lock.file)
        if other is not None:
            theirs = home / "runs" / other.run
            decision = decide(other, options.playbook, left_of(theirs, slurm), options.asked, mine.run)
            if decision.action == "refuse":
                raise BadInput(decision.said)
            if decision.action == "clear":
                clear(theirs, slurm)
            said = decision.said
        if options.asked is Asked.RESUME:
            clear(run, slurm)
            kept = make_ready(run, {PLAN: options.plan, JOBS: options.jobs})
        lock.take(mine, over=other)
    return {"said": said, "kept": kept}


def look(options: argparse.Namespace) -> dict[str, object]:
    """Return the holder, or nothing. Raises BadInput for a file that is no lock."""
    holder = RunLock(options.home).holder()
    return {} if holder is None else holder.model_dump(mode="json", by_alias=True)


def release(options: argparse.Namespace) -> dict[str, object]:
    """Give the lock back; the run's outputs are on the controller."""
    (options.home / "runs" / options.run / STAGES / FETCHED).touch()
    return {"released": RunLock(options.home).release(options.ticket)}


def main() -> int:
    """Do what the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m shakedown.slurm.run_control", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    for name, act in (("look", look), ("take", take), ("release", release)):
        verb = verbs.add_parser(name, help=str(act.__doc__))
        verb.set_defaults(act=act)
        verb.add_argument("home", type=Path, help="the stage's folder on this host")
        if act is take:
            verb.add_argument("holder", help="the new holder, as shakedown.run.lock prints it")
            verb.add_argument("--seen", default="", help="ticket of the holder that was looked at")
            verb.add_argument("--playbook", choices=("alive", "dead", "elsewhere"), default="elsewhere")
            verb.add_argument("--asked", type=Asked, default=Asked.REFUSE)
            verb.add_argument("--plan", default="", help="SHA-256 of the controller's plan.json")
            verb.add_argument("--jobs", default="", help="SHA-256 of the controller's jobs.json")
        elif act is release:
            verb.add_argument("run")
            verb.add_argument("ticket")
    options = parser.parse_args()
    return status_of(lambda: print(json.dumps(options.act(options))))


if __name__ == "__main__":
    ended(main)
