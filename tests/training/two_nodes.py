"""What srun does for a training job, on one machine: a launcher for each of two nodes.

    python two_nodes.py NODE,NODE PROCESSES LAUNCH.py SPEC FOLDER

Like `srun --kill-on-bad-exit=1`, it ends all once one fails. The launchers' process ids go to
FOLDER/pids.json.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    """Start, wait, and return the first failure."""
    nodes, per_node, launch, spec, folder = sys.argv[1].split(","), *sys.argv[2:6]
    port = random.randint(20000, 40000)
    common = [
        *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(nodes)}"),
        *(f"--nproc-per-node={per_node}", "--max-restarts=0", "--rdzv-backend=c10d", "--rdzv-id=t"),
        *(f"--rdzv-endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1", launch, spec, folder),
    ]
    running = [
        subprocess.Popen(common, env={**os.environ, "SLURMD_NODENAME": node, "OMP_NUM_THREADS": "1"})
        for node in nodes
    ]
    Path(folder, "pids.json").write_text(json.dumps([p.pid for p in running]))
    # torchrun ends its processes on SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: [p.terminate() for p in running])
    codes: list[int | None] = [None] * len(running)
    while None in codes:
        codes = [p.poll() for p in running]
        if any(codes):
            time.sleep(3)  # the others may be ending by themselves
            for p in running:
                p.terminate()
            codes = [p.wait() for p in running]
        time.sleep(0.2)
    # torchrun's status is 1 for whatever its processes ended with; the first that failed is the job's.
    return next((code if code > 0 else 128 - code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
