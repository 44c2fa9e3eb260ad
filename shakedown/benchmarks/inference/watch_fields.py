"""What is watched of GPUs during a search. Standard library only: the harness in workloads/ uses it."""

from __future__ import annotations

# The columns of the file, in this order.
FIELDS = ("index", "clocks.sm", "temperature.gpu", "power.draw", "clocks_event_reasons.active")
