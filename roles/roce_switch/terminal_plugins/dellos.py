"""The terminal of Dell OS9 and OS10 for ansible.netcommon.network_cli (ansible_network_os: dellos)."""

from __future__ import annotations

import re

from ansible.errors import AnsibleConnectionFailure
from ansible_collections.ansible.netcommon.plugins.plugin_utils.terminal_base import TerminalBase

DOCUMENTATION = """
name: dellos
short_description: Prompts and error messages of Dell OS9 and OS10
description: Prompts and error messages of Dell OS9 and OS10, which the ansible package has no collection for.
"""


class TerminalModule(TerminalBase):
    """Prompts end in `>` or `#`, with the mode in brackets; errors begin with `%`, or are the shell's."""

    terminal_stdout_re = [re.compile(rb"[\r\n]?[\w.:-]+(?:\([^\)]+\))?[>#] ?$")]  # noqa: RUF012
    terminal_stderr_re = [  # noqa: RUF012
        re.compile(rb"(?m)^% ?[Ee]rror"),
        re.compile(rb"(?m)^% ?(Invalid|Incomplete|Ambiguous|Unrecognized|Illegal|Failed)"),
        # Dell's own collections look for these too: dellemc.os10 and dellemc.os9, plugins/terminal.
        re.compile(rb"(?m)^\s*Syntax error:"),
        re.compile(rb"returned error code"),
    ]

    def on_open_shell(self) -> None:
        """Switch paging off."""
        try:
            self._exec_cli_command(b"terminal length 0")
        except AnsibleConnectionFailure as error:
            raise AnsibleConnectionFailure("unable to set terminal parameters") from error
