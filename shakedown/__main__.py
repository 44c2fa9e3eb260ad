"""`python -m shakedown`: the same as the `shakedown` command."""

from shakedown.cli import main

if __name__ == "__main__":
    main()
