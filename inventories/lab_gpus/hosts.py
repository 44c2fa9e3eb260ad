#!/usr/bin/env python3
"""Dynamic Ansible inventory of a lab of namespaces (`python -m lab up --gpus N`).

While the lab is down it prints two nodes without GPUs, so that planning works without one.
$SHAKEDOWN_LAB chooses among several labs.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lab.inventory import answer
from lab.spaces.inventory import document

if __name__ == "__main__":
    sys.exit(answer(document, __doc__))
