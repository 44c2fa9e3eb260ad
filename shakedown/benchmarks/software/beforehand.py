"""What the nodes lack of the software that a plan's jobs use, told before the first job is submitted.

    python -m shakedown.benchmarks.software.beforehand asked RUN            (what each node is asked, as JSON)
    python -m shakedown.benchmarks.software.beforehand judge RUN < ANSWERS  (JSON: what each node printed)

playbooks/acceptance.yml asks the nodes by `onnode.software look`. Exit status 0, or 2 with one line on
stderr. A node that did not answer is no refusal: the config stage looks at each by a job.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shakedown.intent.places import span
from shakedown.onnode.software import origin
from shakedown.plan.jobs import Jobs
from shakedown.records.program import ended, status_of
from shakedown.records.reading import BadInput, ExitStatus, loads, read_record
from shakedown.records.wording import natural_key, printable
from shakedown.run.folder import JOBS

_LARGEST_ANSWER = 64 << 10  # characters of one node
_LONGEST_REASON = 300
_SHOWN = 8  # nodes in a fix


def asked(jobs: Jobs) -> dict[str, Any]:
    """Return the nodes of a plan, and the software that its jobs use and that is not just on the PATH."""
    used = {name: source for job in jobs.jobs for name, source in job.software.items()}
    named = {name: source.model_dump(by_alias=True) for name, source in sorted(used.items())}
    nodes = sorted({node for job in jobs.jobs for node in job.nodes}, key=natural_key)
    return {"nodes": nodes, "software": {n: s for n, s in named.items() if origin(s)[0] != "package"}}


def refuse_lacking(jobs: Jobs, answers: Mapping[str, str]) -> None:
    """Refuse software that a planned node lacks.

    Args:
        jobs: of the plan.
        answers: what `onnode.software look` printed, by node; others' text.

    Raises BadInput: naming software, place, nodes and the ways out.
    """
    wanted = asked(jobs)
    lacking: dict[tuple[str, str], list[str]] = {}
    for node in wanted["nodes"]:
        for name, why in _reasons(answers.get(node, "")).items():
            if name in wanted["software"] and why:
                lacking.setdefault((name, why), []).append(node)
    if not lacking:
        return
    (name, why), nodes = max(lacking.items(), key=lambda one: len(one[1]))
    kind, place = origin(wanted["software"][name])
    where = " ".join(place) if isinstance(place, list | tuple) else place
    others = {node for few in lacking.values() for node in few}
    more = f", and {len(lacking) - 1} more like it" if len(lacking) > 1 else ""
    left = [node for node in wanted["nodes"] if node not in others]
    ways = [f"make it available there, or change software.{name}"]
    if len(left) > 1:
        some = ",".join(left) if len(left) <= _SHOWN else "..."
        ways.append(f"measure the others: -e acceptance_nodes={some}")
    ways.append("go on without it, what needs it there being NOT-RUN: -e software_missing=not-run")
    raise BadInput(
        f"software.{name} from {kind} {where}: {why}: on {span(nodes)} "
        f"({len(nodes)} of {len(wanted['nodes'])} nodes){more}",
        fix="; or ".join(ways),
    )


def _reasons(said: str) -> dict[str, str]:
    """Return why each software cannot be used, by a node's last line; nothing where it is other text."""
    if not said or len(said) > _LARGEST_ANSWER:
        return {}
    try:
        found = json.loads(said.strip().splitlines()[-1])
    except (ValueError, IndexError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {n: printable(w)[:_LONGEST_REASON] for n, w in found.items() if isinstance(w, str)}


def main(argv: Sequence[str]) -> int:
    """Say what is asked, or judge the answers; return the exit status."""
    if len(argv) != 2 or argv[0] not in ("asked", "judge"):
        print("usage: python -m shakedown.benchmarks.software.beforehand asked|judge RUN", file=sys.stderr)
        return ExitStatus.BAD_INPUT

    def act() -> None:
        jobs = read_record(Path(argv[1]) / JOBS, Jobs)
        if argv[0] == "asked":
            print(json.dumps(asked(jobs)))
        else:
            refuse_lacking(jobs, _answers(sys.stdin.read()))

    return status_of(act)


def _answers(text: str) -> dict[str, str]:
    """Return what the nodes printed, by node. Raises BadInput."""
    try:
        answers = loads(text)
    except ValueError as error:
        raise BadInput(f"the nodes' answers are no JSON: {error}") from None
    if not isinstance(answers, dict) or not all(isinstance(said, str) for said in answers.values()):
        raise BadInput("the nodes' answers are no JSON object", fix="as playbooks/acceptance.yml gives it")
    return answers


if __name__ == "__main__":
    ended(lambda: main(sys.argv[1:]))
