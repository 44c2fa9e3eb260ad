"""What tests of every folder use."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from shakedown import cli


@pytest.fixture
def shakedown(monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """A runner of the command line in this process: (exit status, standard output, standard error)."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["shakedown", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run
