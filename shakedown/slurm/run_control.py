"""On the submit host: who makes a run there. For playbooks/acceptance.yml, which takes and gives back.

Every call prints JSON, or refuses with one line on stderr and exit status 2.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from shakedown.records.errors import BadInput
from shakedown.records.program import ended, status_of
from shakedown.run.folder import JOBS, PLAN
from shakedown.run.lock import RunLock, parse_holder
from shakedown.slurm.client import Slurm
from shakedown.slurm.resume import FETCHED, STAGES, make_ready
from shakedown.slurm.under_way import Asked, clear, decide, left_of


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
            verb.add_argument("holder", help="the new holder, as shakedown.run.holder prints it")
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
