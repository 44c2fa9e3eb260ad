"""On the controller: who we are, and whether another holder of the lock still lives. For acceptance.yml.

python -m shakedown.run.holder mine RUN      print a new holder, for the ansible-playbook above us
python -m shakedown.run.holder look JSON     print alive, dead or elsewhere
"""

from __future__ import annotations

import getpass
import secrets
import sys
from datetime import UTC, datetime

from pydantic import ValidationError

from shakedown.records.errors import BadInput, ExitStatus
from shakedown.records.refusals import refusal
from shakedown.run.lock import Holder, playbook_state
from shakedown.run.processes import boot, host, playbook_above, start_ticks


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
    try:
        question, text = sys.argv[1:]
        if question == "mine":
            print(mine(text).model_dump_json(by_alias=True))
        elif question == "look":
            print(playbook_state(Holder.model_validate_json(text)))
        else:
            raise ValueError(question)
    except ValidationError as error:
        print(refusal(error, Holder), file=sys.stderr)
        return ExitStatus.BAD_INPUT
    except BadInput as error:
        print(error, file=sys.stderr)
        return ExitStatus.BAD_INPUT
    except ValueError:
        print("usage: python -m shakedown.run.holder mine RUN | look JSON", file=sys.stderr)
        return ExitStatus.BAD_INPUT
    return ExitStatus.PASS


if __name__ == "__main__":
    sys.exit(main())
