"""The end of a command's help: examples. A test runs each of them, but for those that need a cluster."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """Return the epilog of a command's help; each line is one whole command."""
    # \b keeps the lines as they are.
    return "\b\n" + "\n".join(
        ["Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)]
    )
