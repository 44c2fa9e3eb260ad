"""The command line of a dynamic Ansible inventory: ``--list`` or ``--host NAME``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from lab.errors import LabError


def answer(document: Callable[[], dict[str, Any]], about: str | None) -> int:
    """Print what Ansible asks for; exit status 2 and one line when the lab's state cannot be read.

    ``document`` makes what ``--list`` prints; the first line of ``about`` is the help's.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0] if about else None)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--list", action="store_true", help="groups and every host's variables")
    asked.add_argument("--host", metavar="NAME", help="one host's variables")
    arguments = parser.parse_args()
    try:
        found = document()
    except LabError as error:
        print(f"hosts.py: {error}", file=sys.stderr)
        return error.exit_status
    if arguments.host is not None:
        found = found["_meta"]["hostvars"].get(arguments.host, {})
    print(json.dumps(found, indent=2))
    return 0
