"""What torchrun starts: `torchrun ... launch.py SPEC.json FOLDER`.

Started by path, because the training environment has no Shakedown installed: the folder that holds the
package is put last on the path, so that nothing in it can hide a package of the environment.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:1] = []  # this folder, whose modules are not to be found by their bare names
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    from shakedown.trainer.main import main

    main(Path(sys.argv[1]), Path(sys.argv[2]))
