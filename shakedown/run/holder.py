"""On the controller: who we are, and whether another holder of the lock still lives. For acceptance.yml.

python -m shakedown.run.holder mine RUN      print a new holder, for the ansible-playbook above us
python -m shakedown.run.holder look JSON     print alive, dead or elsewhere
"""

from __future__ import annotations

import getpass
import secrets
import sys
from datetime import UTC, datetime

from shakedown.records.errors import BadInput, ExitStatus
from shakedown.records.program import ended, status_of
from shakedown.run.lock import Holder, boot, host, parse_holder, playbook_above, playbook_state, start_ticks


def mine(run: str) -> Holder:
    """Return this controller's holder of a run. Raises BadInput."""
    pid = playbook_above()
    ticks = start_ticks(pid)
    if ticks is None:
        raise BadInput("the ansible-playbook that started this has ended")
    return Holder(
        run=run,
        host=host(),
        boot=boot(),
        pid=pid,
        start_ticks=ticks,
        user=getpass.getuser(),
        since=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        ticket=secrets.token_hex(8),
    )


def main() -> int:
    """Answer one question; return the exit status."""
    question, text = sys.argv[1:] if len(sys.argv) == 3 else ("", "")
    if question == "mine":
        return status_of(lambda: print(mine(text).model_dump_json(by_alias=True)))
    if question == "look":
        return status_of(lambda: print(playbook_state(parse_holder(text))))
    print("usage: python -m shakedown.run.holder mine RUN | look JSON", file=sys.stderr)
    return ExitStatus.BAD_INPUT


if __name__ == "__main__":
    ended(main)
