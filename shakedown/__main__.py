"""`python -m shakedown`: the same as the `shakedown` command."""

from shakedown.commands.cli import main

if __name__ == "__main__":
    main()
