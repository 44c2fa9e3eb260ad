"""The command line of Dell OS9 and OS10 for ansible.netcommon.network_cli (ansible_network_os: dellos)."""

from __future__ import annotations

import json

from ansible_collections.ansible.netcommon.plugins.plugin_utils.cliconf_base import CliconfBase

DOCUMENTATION = """
name: dellos
short_description: Commands on Dell OS9 and OS10
description: Commands on Dell OS9 and OS10; enough for cli_command.
"""


class Cliconf(CliconfBase):
    """Enough for cli_command; configuring line by line is the role's own work."""

    def get_config(self, source: str = "running", flags: object = None, format: str | None = None) -> object:
        """Return the running configuration as text."""
        return self.send_command("show running-config")

    def edit_config(self, *_args: object, **_kwargs: object) -> None:
        """Refuse: a change without checkpoint and read-back is not made through here."""
        raise NotImplementedError("use cli_command")

    def get(
        self,
        command: str | None = None,
        prompt: object = None,
        answer: object = None,
        sendonly: bool = False,
        newline: bool = True,
        check_all: bool = False,
        **_kwargs: object,
    ) -> object:
        """Run one command."""
        return self.send_command(
            command=command,
            prompt=prompt,
            answer=answer,
            sendonly=sendonly,
            newline=newline,
            check_all=check_all,
        )

    def get_device_info(self) -> dict[str, str]:
        """Name the system."""
        return {"network_os": "dellos"}

    def get_capabilities(self) -> str:
        """Return what cli_command asks for, as JSON."""
        return json.dumps({"network_api": "cliconf", "rpc": ["get"], "device_info": self.get_device_info()})
