#!/usr/bin/env python3
"""Dynamic Ansible inventory of a lab of namespaces (`python -m lab up --gpus N`).

While the lab is down it prints two nodes without GPUs, so that planning works without one.
$SHAKEDOWN_LAB chooses among several labs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lab.errors import LabError
from lab.spaces.inventory import document


def main() -> int:
    """Print what Ansible asks for; exit status 2 and one line when the lab's state cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
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


if __name__ == "__main__":
    sys.exit(main())
