#!/usr/bin/env python3
"""Dynamic Ansible inventory of the lab: groups, connections and cabling (lab/inventory.py)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lab.inventory import main

if __name__ == "__main__":
    sys.exit(main("own", "foreign"))
