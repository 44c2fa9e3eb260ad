"""`python -m shakedown`: the same as the `shakedown` command, of the package that Python finds first."""

import site
import sys
from pathlib import Path

from shakedown.commands.cli import main
from shakedown.records.program import PACKAGE, SOURCE

if __name__ == "__main__":
    # PYTHONPATH may put another clone before the one that is installed; who stands in it wants it so.
    places = [*site.getsitepackages(), site.getusersitepackages()]
    found = [spec.origin for finder in sys.meta_path if (spec := finder.find_spec("shakedown", places))]
    installed = [Path(origin).resolve().parent for origin in found if origin]
    if installed and PACKAGE not in installed and not Path.cwd().is_relative_to(SOURCE):
        how = f"unset PYTHONPATH, or start {Path(sys.executable).with_name('shakedown')}"
        print(f"shakedown: this is {PACKAGE}, {installed[0]} is installed: {how}", file=sys.stderr)
    main()
