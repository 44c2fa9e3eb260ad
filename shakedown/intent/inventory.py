"""Reads an Ansible inventory into a `Site`, through Ansible itself, so that its own rules hold."""

from __future__ import annotations

import importlib.util
import ipaddress
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shakedown.intent.site import Acceptance, Fabric, NodeOptions, NoFabric, Site
from shakedown.nos.counters import LOST, Classes, ratios
from shakedown.nos.readings import port_name
from shakedown.nos.registry import known
from shakedown.records.errors import BadInput


def read_site(inventory: Path) -> Site:
    """Return the site that an inventory describes.

    Raises:
        BadInput: the inventory is missing, broken, or its hosts contradict its intent.
    """
    if not inventory.exists():
        raise BadInput("no such inventory", fix="name a folder under inventories/", file=inventory)
    return site_of(_values(inventory), inventory)


def site_of(document: dict[str, Any], file: Path) -> Site:
    """Return the site in a document like that of `ansible-inventory --list`, its values templated.

    Raises:
        BadInput: naming the host and key at fault.
    """
    hostvars: dict[str, dict[str, Any]] = document.get("_meta", {}).get("hostvars", {})
    compute = _group(document, "compute")
    if not compute:
        raise BadInput("group `compute` has no hosts", fix="list the nodes under it", file=file)
    common = hostvars.get(compute[0], {})
    if "fabric" not in common:
        raise BadInput("no `fabric` in group_vars/all", fix="copy inventories/lab's fabric.yml", file=file)
    try:
        intent = common["fabric"]
        none = isinstance(intent, dict) and "no_fabric" in intent
        fabric = (NoFabric if none else Fabric).model_validate(intent)
        acceptance, own = _acceptance({name: hostvars[name] for name in compute}, file)
        site = Site.model_validate(
            {
                "fabric": fabric,
                "acceptance": acceptance,
                "own": own,
                "nics": {
                    name: [_nic(nic) for nic in hostvars[name].get("fabric_nics", [])] for name in compute
                },
                "addresses": {
                    name: str(hostvars[name].get("mgmt_ip") or hostvars[name].get("ansible_host") or name)
                    for name in compute
                },
                "gpus": {name: len(hostvars[name].get("gpus", [])) for name in compute},
                "switches": [
                    {
                        "name": name,
                        "nos": hostvars[name].get("roce_switch_nos", "unknown"),
                        "ports": [
                            [port_name(str(p["port"])), p["host"], p["netdev"], p["rail"]]
                            for p in hostvars[name].get("leaf_ports", [])
                        ],
                        **_reports(str(hostvars[name].get("roce_switch_nos", "unknown")), fabric),
                    }
                    for name in _group(document, "switches")
                ],
            }
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{where}: {first['msg']}", fix="mend the inventory", file=file) from None
    except (KeyError, TypeError) as error:
        raise BadInput(f"hosts lack {error}", fix="mend the inventory", file=file) from None
    _check(site, file)
    return site


# What each node is measured for by itself, so that nodes may differ in it.
_OWN = ("scope", "interconnect", "inference")


def _acceptance(hosts: dict[str, dict[str, Any]], file: Path) -> tuple[Acceptance, dict[str, NodeOptions]]:
    """Return what the site measures, and each node's own part where nodes differ.

    Raises:
        BadInput: nodes differ in what holds for all of them.
        ValidationError: an option that is none.
    """
    first = next(iter(hosts))
    asked = hosts[first].get("acceptance", {})
    acceptance = Acceptance.model_validate(asked)
    own: dict[str, NodeOptions] = {}
    differ = False
    for name, host in hosts.items():
        if host.get("fabric") != hosts[first]["fabric"]:
            raise BadInput(f"fabric of {name} is not that of {first}", fix="one intent for all", file=file)
        mine = acceptance
        if (its := host.get("acceptance", {})) != asked:
            differ = True
            mine = Acceptance.model_validate(its)
            for section in Acceptance.model_fields:
                if section not in _OWN and getattr(mine, section) != getattr(acceptance, section):
                    raise BadInput(
                        f"acceptance.{section} of {name} is not that of {first}",
                        fix=f"let nodes differ in {', '.join(_OWN)} only",
                        file=file,
                    )
        own[name] = NodeOptions(scope=mine.scope, interconnect=mine.interconnect, inference=mine.inference)
    if not differ:
        return acceptance, {}
    common = set.intersection(*(set(options.scope.items()) for options in own.values()))
    return acceptance.model_copy(update={"scope": dict(sorted(common))}), own


def _reports(nos: str, fabric: Fabric | NoFabric) -> dict[str, tuple[str, ...]]:
    """Return the counters that a switch's system is known to tell."""
    if isinstance(fabric, NoFabric):
        return {}
    roce = fabric.roce
    classes = Classes(
        priority=roce.priority, traffic_class=roce.traffic_class, queue=roce.queue, cnp_queue=roce.cnp.queue
    )
    reader = known(nos)
    if reader.parse is None:
        return {}
    return {
        "reports": (*reader.reported(classes), *ratios(reader.reported(classes), classes)),
        "reports_of_rails": (LOST,) if reader.forwarded else (),
    }


def _check(site: Site, file: Path) -> None:
    rails = {rail.name: ipaddress.ip_network(rail.subnet) for rail in site.fabric.rails}
    if len(rails) != len(site.fabric.rails):
        raise BadInput("fabric.rails: a rail is named twice", fix="give each rail its own name", file=file)
    ends: dict[tuple[str, str], str] = {}
    addresses: dict[str, str] = {}
    for node, nics in site.nics.items():
        for nic in nics:
            what = f"{node}: fabric_nics {nic.netdev}"
            if nic.rail not in rails:
                raise BadInput(
                    f"{what}: unknown rail {nic.rail!r}", fix=f"use one of {', '.join(rails)}", file=file
                )
            if ipaddress.ip_address(nic.ipv4) not in rails[nic.rail]:
                raise BadInput(
                    f"{what}: {nic.ipv4} is not in {nic.rail}'s subnet {rails[nic.rail]}",
                    fix="mend the address or the rail",
                    file=file,
                )
            if nic.ipv4 in addresses:
                raise BadInput(
                    f"{what}: {nic.ipv4} is {addresses[nic.ipv4]}'s as well",
                    fix="give each NIC its own address",
                    file=file,
                )
            addresses[nic.ipv4] = f"{node}/{nic.netdev}"
        seen = [nic.rail for nic in nics]
        for rail in rails:
            if seen.count(rail) != 1:
                raise BadInput(
                    f"{node} has {seen.count(rail)} NICs on {rail}", fix="give it one on each rail", file=file
                )
        for nic in nics:
            if nic.leaf and nic.leaf_port:
                end = (nic.leaf, nic.leaf_port)
                if end in ends:
                    raise BadInput(
                        f"{nic.leaf} {nic.leaf_port} is cabled to {ends[end]} and to {node}/{nic.netdev}",
                        fix="one cable ends in one port",
                        file=file,
                    )
                ends[end] = f"{node}/{nic.netdev}"


def _group(document: dict[str, Any], name: str) -> list[str]:
    group = document.get(name, {})
    hosts = list(group.get("hosts", []))
    for child in group.get("children", []):
        hosts.extend(host for host in _group(document, child) if host not in hosts)
    return hosts


def _nic(raw: dict[str, Any]) -> dict[str, Any]:
    address = str(raw["ipv4"]).partition("/")[0]
    known = {key: raw.get(key) for key in ("rail", "rdma_device", "netdev", "leaf")}
    leaf_port = raw.get("leaf_port")
    return {**known, "ipv4": address, "leaf_port": port_name(str(leaf_port)) if leaf_port else None}


def _values(inventory: Path) -> dict[str, Any]:
    """Return groups and templated values, as inventory_values.py prints them. Raises BadInput."""
    program = Path(__file__).with_name("inventory_values.py")
    answer = subprocess.run(
        # -P: the folder of a script is no place to import from.
        [_python(), "-P", str(program), "-i", str(inventory)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines() or ["no message"]
        words = next((line for line in lines if line.startswith("[ERROR]")), lines[-1])
        raise BadInput(f"ansible: {words[:300]}", fix="mend the inventory", file=inventory)
    try:
        document = json.loads(answer.stdout)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise BadInput("ansible printed no object", file=inventory)
    if "refused" in document:
        host, key, reason = document["refused"]
        raise BadInput(
            f"{key} of {host} has no value: {reason[:300]}",
            fix="give it one that needs no facts, tasks or roles",
            file=inventory,
        )
    return document


def _python() -> str:
    """Return the Python that has ansible-core: this one, or that of ansible-inventory. Raises BadInput."""
    if importlib.util.find_spec("ansible") is not None:
        return sys.executable
    command = shutil.which("ansible-inventory")
    if command is None:
        raise BadInput("ansible-core is not installed", fix="run make setup, or pip install ansible")
    with Path(command).open("rb") as script:
        first = script.readline(4096).decode(errors="replace").strip()
    python = first.removeprefix("#!").strip()
    if not first.startswith("#!/") or not Path(python).is_file():
        raise BadInput("cannot tell which Python runs ansible", fix="install ansible beside it", file=command)
    return python
