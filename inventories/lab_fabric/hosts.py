#!/usr/bin/env python3
"""Dynamic Ansible inventory of the leaf-spine lab (`python -m lab up --site fabric`).

While the lab is down it still prints the topology of the default size, so that planning works without one;
the machines then have port 0 and no key.  $SHAKEDOWN_LAB chooses among several labs.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lab.cabling import document
from lab.inventory import answer

if __name__ == "__main__":
    sys.exit(answer(lambda: document("fabric"), __doc__))
