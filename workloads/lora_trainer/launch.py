"""What torchrun starts: `torchrun ... launch.py SPEC.json FOLDER`.

Started by path, because the training environment has no Shakedown installed: the folders that hold its
packages are put last on the path, so that nothing in it can hide a package of the environment.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:1] = []  # this folder, whose modules are not to be found by their bare names
    workloads = Path(__file__).resolve().parents[1]
    sys.path += [str(workloads), str(workloads.parent)]
    from lora_trainer.main import main

    main(Path(sys.argv[1]), Path(sys.argv[2]))
