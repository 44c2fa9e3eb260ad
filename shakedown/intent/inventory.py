"""Reads an Ansible inventory into a `Site`, through Ansible itself, so that its own rules hold."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shakedown.intent import links, ordered, rules, slurm_block, software, tcp_rules
from shakedown.intent.acceptance import AcceptanceBase, Ownership
from shakedown.intent.places import (
    problems_of,
    refuse,
    refuse_impossible_date,
    refuse_no_yaml,
    refuse_odd_files,
)
from shakedown.intent.rules import Problem
from shakedown.intent.site import Fabric, NoFabric, Site
from shakedown.intent.slurm_block import SlurmBlock
from shakedown.intent.variables import check_names
from shakedown.nos.readings import port_name
from shakedown.nos.registry import SYSTEMS, known
from shakedown.nos.system import LOST, Classes, ratios
from shakedown.records.program import ansible_environment
from shakedown.records.reading import BadInput

# A site's own references lie in its folder (references.of_site); ansible.cfg says the same to the playbooks.
_NO_INVENTORY = "^profiles$"


def read_site(inventory: Path, acceptance: type[AcceptanceBase]) -> Site:
    """Return the site that an inventory describes; `acceptance` is the model of what it may ask for.

    Raises BadInput: the inventory is missing, broken, or its hosts contradict its intent.
    """
    if not inventory.exists():
        raise BadInput("no such inventory", fix="name a folder under inventories/", file=inventory)
    refuse_odd_files(inventory)
    check_names(inventory)
    return site_of(_values(inventory), inventory, acceptance)


def site_of(document: dict[str, Any], file: Path, model: type[AcceptanceBase]) -> Site:
    """Return the site in a document like that of `ansible-inventory --list`, its values templated.

    Raises BadInput: naming the host and key at fault.
    """
    hostvars: dict[str, dict[str, Any]] = document.get("_meta", {}).get("hostvars", {})
    compute = _group(document, "compute")
    if not compute:
        raise BadInput("group `compute` has no hosts", fix="list the nodes under it", file=file)
    common = hostvars.get(compute[0], {})
    if "fabric" not in common:
        raise BadInput("no `fabric` in group_vars/all", fix="copy inventories/lab's fabric.yml", file=file)
    intent = common["fabric"]
    none = isinstance(intent, dict) and "no_fabric" in intent
    kind: type[Fabric] | type[NoFabric] = NoFabric if none else Fabric
    try:
        fabric = kind.model_validate(intent)
    except ValidationError as error:
        raise refuse([(None, p) for p in problems_of(error, kind, ("fabric",))], file) from None
    _same({name: hostvars[name] for name in compute}, file)
    acceptance, own = _acceptance({name: hostvars[name] for name in compute}, file, model)
    switches = _group(document, "switches")
    if wrong := _wrong_hosts(
        fabric,
        compute,
        switches,
        hostvars,
        reads_switches=any(section.reads_switches for section, _ in acceptance.asked()),
    ):
        raise refuse(wrong, file)
    block = _slurm_block({name: hostvars[name] for name in compute}, file)
    _ownership(common, file)
    bought, wrong_items = ordered.read(common.get(ordered.KEY), compute, switches)
    if wrong_items:
        raise refuse([(None, problem) for problem in wrong_items], file)
    tcp_fabrics = common.get("tcp_fabrics", [])
    if wrong := tcp_rules.problems(tcp_fabrics, {name: hostvars[name] for name in compute}):
        raise refuse(wrong, file)
    described = fabric.model_dump()
    try:
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
                "shared_gpus": [
                    name
                    for name in compute
                    if any(gpu.get("shared") is True for gpu in hostvars[name].get("gpus", []))
                ],
                "waivers": common.get("waivers", ()),
                "absent_nodes": common.get("absent_nodes") or {},
                "slurm": block,
                "software": common.get(software.KEY) or {},
                "job_time": slurm_block.stated(block.max_job_time),
                "ordered": bought,
                "tcp_fabrics": tcp_fabrics,
                "tcp_nics": {
                    name: [
                        {**nic, "ipv4": str(nic["ipv4"]).partition("/")[0]}
                        for nic in hostvars[name].get("tcp_nics", [])
                    ]
                    for name in compute
                    if tcp_fabrics
                },
                "switches": [
                    {
                        "name": name,
                        "nos": hostvars[name].get("roce_switch_nos", "unknown"),
                        "ports": [
                            [port_name(str(p["port"])), p["host"], p["netdev"], p["rail"]]
                            for p in hostvars[name].get("leaf_ports", [])
                        ],
                        "uplinks": [
                            {
                                "port": port_name(p["port"]),
                                "role": p["role"],
                                "peer": p["host"],
                                "peer_port": port_name(p["netdev"]),
                                "speed_gbps": p["speed_gbps"],
                            }
                            for p in links.link_ports(described, name)
                        ],
                        **_reports(str(hostvars[name].get("roce_switch_nos", "unknown")), fabric),
                    }
                    for name in switches
                ],
            }
        )
    except ValidationError as error:
        raise refuse([_of_host(problem) for problem in problems_of(error, Site, ())], file) from None
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"hosts lack {error}", fix="mend the inventory", file=file) from None
    return site


def _same(hosts: dict[str, dict[str, Any]], file: Path) -> None:
    """Refuse nodes that name different software, or what was bought otherwise. Raises BadInput."""
    first = next(iter(hosts))
    for name, host in hosts.items():
        for key in (software.KEY, ordered.KEY):
            if host.get(key) != hosts[first].get(key):
                what = f"{key} of {name} is not that of {first}"
                raise refuse([(name, Problem((key,), what, "say it once, in group_vars/all"))], file)


def _slurm_block(hosts: dict[str, dict[str, Any]], file: Path) -> SlurmBlock:
    """Return how jobs are submitted, the same for all nodes. Raises BadInput."""
    first = next(iter(hosts))
    given = hosts[first].get("slurm", {})
    for name, host in hosts.items():
        if host.get("slurm", {}) != given:
            problem = Problem(
                ("slurm",), f"slurm is not that of {first}", "one block for all, in group_vars/all"
            )
            raise refuse([(name, problem)], file)
    try:
        return SlurmBlock.model_validate(given)
    except ValidationError as error:
        raise refuse([(None, p) for p in problems_of(error, SlurmBlock, ("slurm",))], file) from None


def _ownership(common: dict[str, Any], file: Path) -> None:
    """Refuse what the playbooks would take for something else than is meant. Raises BadInput."""
    try:
        Ownership.model_validate({key: common[key] for key in Ownership.model_fields if key in common})
    except ValidationError as error:
        raise refuse([(None, p) for p in problems_of(error, Ownership, ())], file) from None


def _of_host(problem: Problem) -> tuple[str | None, Problem]:
    """Return whose a problem of the site is, with its key as the inventory has it."""
    variable = (
        {"nics": "fabric_nics", "tcp_nics": "tcp_nics"}.get(str(problem.key[0]))
        if len(problem.key) > 1
        else None
    )
    if variable is None:
        return None, problem
    host, rest = str(problem.key[1]), problem.key[2:]
    name = ".".join(map(str, (variable, *rest)))
    what = problem.what.replace(".".join(map(str, problem.key)), name)
    return host, Problem((variable, *rest), what, problem.fix)


def _wrong_hosts(
    fabric: Fabric | NoFabric,
    compute: list[str],
    switches: list[str],
    hostvars: dict[str, dict[str, Any]],
    *,
    reads_switches: bool,
) -> list[tuple[str | None, Problem]]:
    """Return what the rules say of the hosts' NICs and of the switches.

    A switch's own limits count where acceptance reads it back (`reads_switches`), by the role that has them.
    """
    if isinstance(fabric, NoFabric):
        return []
    intent = fabric.model_dump()
    found: list[tuple[str | None, Problem]] = []
    nics: dict[str, list[dict[str, Any]]] = {}
    for name in compute:
        given = hostvars[name].get("fabric_nics", [])
        if isinstance(given, list) and all(isinstance(nic, dict) for nic in given):
            nics[name] = given
        else:
            what = "fabric_nics is no list of mappings"
            found.append(
                (name, Problem(("fabric_nics",), what, "give rail, netdev, rdma_device, ipv4 of each"))
            )
    management = {name: str(hostvars[name].get("ansible_host", name)) for name in compute}
    found += rules.nic_problems(nics, intent, management)
    for name in switches:
        ports = hostvars[name].get("leaf_ports", [])
        if not isinstance(ports, list) or not all(isinstance(port, dict) for port in ports):
            found.append(
                (name, Problem(("leaf_ports",), "leaf_ports is no list of mappings", "name the ports"))
            )
            continue
        if ports:  # a spine has none
            problems = list(rules.cabling_problems(ports, intent, (), hostvars))
            found += [(name, problem) for problem in problems]
        system = SYSTEMS.get(str(hostvars[name].get("roce_switch_nos")))
        if system and reads_switches:
            limits = [*rules.switch_problems(intent, system.name, system.lossless_limit)]
            lengths = hostvars[name].get("roce_switch_cable_lengths_m", system.cable_lengths_m)
            if lengths and not hostvars[name].get("roce_switch_sonic_dynamic_buffers"):
                limits += links.cable_problems(intent, name, system.name, lengths)
            found += [(name, problem) for problem in limits]
    cabled = {name: hostvars[name].get("leaf_ports", []) for name in switches}
    if not found:
        found += links.of_hosts(intent, cabled, nics, switches)
    return found


def _acceptance(
    hosts: dict[str, dict[str, Any]], file: Path, model: type[AcceptanceBase]
) -> tuple[AcceptanceBase, dict[str, AcceptanceBase]]:
    """Return what the site measures, and what each node is measured for where nodes differ.

    Raises BadInput: an option that is none, or nodes differ in what holds for all of them.
    """
    first = next(iter(hosts))
    asked = hosts[first].get("acceptance", {})
    wrong: list[tuple[str | None, Problem]] = []
    for name, host in hosts.items():
        its = host.get("acceptance", {})
        if its != asked or name == first:
            if gone := software.retired(its):
                wrong += [(name, problem) for problem in gone]
                continue
            try:
                model.model_validate(its)
            except ValidationError as error:
                wrong += [(name, problem) for problem in problems_of(error, model, ("acceptance",))]
    if wrong:
        same = all(host.get("acceptance", {}) == asked for host in hosts.values())
        raise refuse([(None if same else name, problem) for name, problem in wrong], file)
    acceptance = model.model_validate(asked)
    # What each node is measured for by itself, so that nodes may differ in it.
    each = ("scope", *(section.key for section in model.sections if section.of_each_node))
    own: dict[str, AcceptanceBase] = {}
    differ = False
    for name, host in hosts.items():
        if host.get("fabric") != hosts[first]["fabric"]:
            raise BadInput(f"fabric of {name} is not that of {first}", fix="one intent for all", file=file)
        mine = acceptance
        if (its := host.get("acceptance", {})) != asked:
            differ = True
            mine = model.model_validate(its)
            for section in model.model_fields:
                if section not in each and getattr(mine, section) != getattr(acceptance, section):
                    raise BadInput(
                        f"acceptance.{section} of {name} is not that of {first}",
                        fix=f"let nodes differ in {', '.join(each)} only",
                        file=file,
                    )
        own[name] = mine
    if not differ:
        return acceptance, {}
    common = set.intersection(*(set(options.scope.items()) for options in own.values()))
    return acceptance.model_copy(update={"scope": dict(sorted(common))}), own


def _reports(nos: str, fabric: Fabric | NoFabric) -> dict[str, tuple[str, ...]]:
    """Return the counters that a switch's system is known to report."""
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
        "may_report": reader.may_report,
    }


def _group(document: dict[str, Any], name: str) -> list[str]:
    group = document.get(name, {})
    hosts = list(group.get("hosts", []))
    for child in group.get("children", []):
        hosts.extend(host for host in _group(document, child) if host not in hosts)
    return hosts


def _nic(raw: dict[str, Any]) -> dict[str, Any]:
    address = str(raw["ipv4"]).partition("/")[0]
    known = {key: raw.get(key) for key in ("rail", "rdma_device", "netdev", "leaf", "driver")}
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
        env={**ansible_environment(os.environ), "ANSIBLE_INVENTORY_IGNORE_REGEX": _NO_INVENTORY},
    )
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines() or ["no message"]
        words = next((line for line in lines if line.startswith("[ERROR]")), lines[-1])
        refuse_impossible_date(inventory)
        refuse_no_yaml(inventory)
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
        raise BadInput(
            "ansible-core is not installed", fix="pip install 'shakedown[controller]', or run make setup"
        )
    with Path(command).open("rb") as script:
        first = script.readline(4096).decode(errors="replace").strip()
    python = first.removeprefix("#!").strip()
    if not first.startswith("#!/") or not Path(python).is_file():
        raise BadInput("cannot tell which Python runs ansible", fix="install ansible beside it", file=command)
    return python
