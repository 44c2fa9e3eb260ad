"""Prints an inventory's groups and the values of the variables that planning reads, as Ansible sees them.

    python -P shakedown/intent/inventory_values.py -i INVENTORY

A program of its own, run by whichever Python has ansible-core: importing Ansible sets up its command line,
plugins and warnings. `ansible-inventory --list` prints templates as they stand, and a play over a thousand
hosts takes minutes. So this is what `ansible-inventory` does up to the variables, then templates the few that
are read and what they need, and nothing else: lookups of other variables do not run. What Ansible 2.19 does
not trust as a template stays text, and is refused.

Prints one JSON object: `compute` and `switches` with their `hosts`, and `_meta.hostvars`, as `--list` does;
or `{"refused": [host, key, reason]}`.
"""

import gc
import json
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from ansible import cli  # first: it sets up what the others need
from ansible.cli.arguments import option_helpers
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.hostvars import HostVars

READ = {
    "compute": (
        "fabric",
        "acceptance",
        "fabric_nics",
        "tcp_fabrics",
        "tcp_nics",
        "gpus",
        "mgmt_ip",
        "ansible_host",
        "waivers",
        "absent_nodes",
        "ordered",
        "slurm",
        "software",
        "manage",
        "shared_stage_path",
        "shared_code_path",
    ),
    "switches": (
        "roce_switch_nos",
        "leaf_ports",
        "roce_switch_cable_lengths_m",
        "roce_switch_sonic_dynamic_buffers",
    ),
}


class RefusedError(Exception):
    """A value that cannot be read: host, key and reason."""


class HostValues(Mapping[str, Any]):
    """One host's variables, each templated when it is first asked for and once."""

    def __init__(self, name: str, variables: dict[str, Any], loader: Any) -> None:  # noqa: ANN401
        self._name, self._variables = name, variables
        self._templar = Templar(loader=loader, variables=variables)
        self._done: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401
        if key not in self._done:
            self._done[key] = self._templar.template(self._variables[key])
        return self._done[key]

    def __contains__(self, key: object) -> bool:
        return key in self._variables  # a mapping's own would template to find out

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)


class InventoryFleet(HostVars):
    """`hostvars`: Ansible's own makes every variable of a host anew at each mention of it."""

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments)
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        if name not in self._made:
            found = self.raw_get(name)
            if not isinstance(found, dict):
                return found  # Ansible's mark of something undefined
            found["hostvars"] = self
            self._made[name] = HostValues(name, found, self._loader)
        return self._made[name]


class Uncopied(DataLoader):
    """Gives what it keeps nothing of as it was read: Ansible copies it, to protect what it keeps."""

    def load_from_file(self, file_name: str, cache: str = "all", unsafe: bool = False, **more: Any) -> Any:  # noqa: ANN401
        """Return a file's data. A large inventory is read twice, and a copy takes as long as reading."""
        return super().load_from_file(file_name, cache=cache, unsafe=unsafe or cache == "none", **more)


class TemplatedValues(cli.CLI):
    """The command line, as ansible-inventory's: inventory, vault and verbosity."""

    name = "shakedown-inventory-values"

    def init_parser(self) -> None:
        """Add the options."""
        super().init_parser(desc="Print what planning reads of an inventory.")
        option_helpers.add_inventory_options(self.parser)
        option_helpers.add_vault_options(self.parser)
        option_helpers.add_basedir_options(self.parser)

    def post_process_args(self, options: Any) -> Any:  # noqa: ANN401
        """Return the options as they are."""
        return super().post_process_args(options)

    def run(self) -> int:
        """Print the document."""
        super().run()
        # One reading and the end: what would be found by looking for garbage is not worth the looking.
        gc.disable()
        cli.DataLoader = Uncopied
        loader, inventory, variables = self._play_prereqs()
        fleet = InventoryFleet(inventory, variables, loader)
        document: dict[str, Any] = {}
        hosts: dict[str, dict[str, Any]] = {}
        try:
            for group, keys in READ.items():
                names = (
                    [h.name for h in inventory.groups[group].get_hosts()] if group in inventory.groups else []
                )
                document[group] = {"hosts": names}
                for name in names:
                    hosts.setdefault(name, {}).update(_values(name, fleet[name], keys))
        except RefusedError as refused:
            document = {"refused": refused.args}
        sys.stdout.write(json.dumps(document | {"_meta": {"hostvars": hosts}}))
        return 0


def _values(name: str, host: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for key in keys:
        if key not in host:
            continue
        try:
            found[key] = _plain(host[key])
        except (AnsibleError, TypeError, ValueError) as error:
            raise RefusedError(name, key, " ".join(str(error).split())) from None
    return found


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a value as JSON has it. Raises TypeError, ValueError."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        if "{{" in value or "{%" in value:
            raise ValueError(f"{value[:80]!r} is a template that Ansible leaves as text")
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, date):  # as a waiver's last day is written: 2026-03-01
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is no value of an inventory")


if __name__ == "__main__":
    TemplatedValues.cli_executor([TemplatedValues.name, *sys.argv[1:]])
