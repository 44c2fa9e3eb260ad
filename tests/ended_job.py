"""What Slurm says of a job that ended well, for tests that write a `job.json` of their own."""

from __future__ import annotations

# Outputs carry the time of their fixture, or of the machine that runs the test: all lie within.
ENDED = {"state": "COMPLETED", "exit_code": "0:0", "started": "2020-01-01T00:00:00Z", "duration_s": 1e9}
