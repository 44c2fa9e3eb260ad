"""What the role renders for each system, without Ansible: the same templates, filters and intent."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

ROLE = Path(__file__).resolve().parents[3] / "roles/roce_switch"
PORTS = {"linux": ["swp1", "swp2"], "sonic": ["Ethernet0", "Ethernet4"]}
PORTS |= {"enterprise_sonic": ["Eth1/1", "Eth1/2"], "cumulus": ["swp1", "swp2"]}
PORTS |= {"eos": ["Ethernet1/1", "Ethernet2/1"], "nxos": ["Ethernet1/1", "Ethernet1/2"]}
PORTS |= {"os9": ["hundredGigE 1/1", "hundredGigE 1/2"], "os10": ["ethernet1/1/1", "ethernet1/1/2"]}


# A SONiC platform: DellEMC-Z9664f-O64 of sonic-buildimage (buffers_defaults_t0.j2, pg_profile_lookup.ini).
PLATFORM = {
    "DEVICE_METADATA": {"localhost": {"platform": "x86_64-dell_z9664f-r0", "hwsku": "DellEMC-Z9664f-O64"}},
    "PORT": {name: {"mtu": "9100", "speed": "100000"} for name in PORTS["sonic"]},
    "BUFFER_POOL": {"ingress_lossless_pool": {"mode": "dynamic", "type": "ingress"}},
    "BUFFER_PROFILE": {"egress_lossless_profile": {}, "egress_lossy_profile": {}},
}
LOOKUP = """# PG lossless profiles.
# speed cable size     xon     xoff  threshold xon_offset
 100000  5m   9144     9144   129032      0        9144
 400000  5m   9144     9144   371348      0        9144
 100000  40m  9144     9144   142240      0        9144
 400000  40m  9144     9144   424434      0        9144
 100000  300m 9144     9144   240538      0        9144
 400000  300m 9144     9144   817372      0        9144
"""


def load(path: str) -> ModuleType:
    """Import a file of the role; Ansible's plugin folders are no packages."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROLE / path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


general = load("filter_plugins/roce_switch.py")
cli = load("filter_plugins/cli_config.py")
sonic = load("filter_plugins/sonic_config.py")
sonic_change = load("filter_plugins/sonic_change.py")
nvue = load("filter_plugins/nvue_config.py")
enterprise = load("filter_plugins/enterprise_sonic.py")
leaf = load("files/roce_leaf.py")


def intent() -> dict[str, Any]:
    """A fresh copy of the one intent."""
    return yaml.safe_load(Path(__file__).with_name("intent.yml").read_text())


def changed(path: str, value: Any) -> dict[str, Any]:
    """The intent with one value changed, `roce.cnp.dscp` for example."""
    fabric = intent()
    *above, last = path.split(".")
    here = fabric
    for key in above:
        here = here[key]
    here[last] = value
    return fabric


def cabling(nos: str) -> list[dict[str, str]]:
    """Two ports, one host on each."""
    return [
        {"port": port, "host": f"n{i}", "netdev": "fab0", "rail": "rail0"}
        for i, port in enumerate(PORTS[nos], start=1)
    ]


def cli_text(
    nos: str, fabric: dict[str, Any], ports: list[dict[str, Any]] | None = None, queue: str = "uc-tx-queue"
) -> str:
    """A rendered command-line configuration; `queue`: what EOS calls one."""
    environment = Environment(
        loader=FileSystemLoader(ROLE / "templates"),
        trim_blocks=True,
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  (a switch's configuration, as Ansible renders it)
    )
    return environment.get_template(f"{nos}.j2").render(
        fabric=fabric,
        _roce_switch_ports=cabling(nos) if ports is None else ports,
        roce_switch_lossless=general.lossless_priorities(fabric),
        roce_switch_eos_queue=queue,
    )


def cli_owned(nos: str, fabric: dict[str, Any]) -> list[str]:
    """The patterns of lines that may not stand beside the rendered ones, on the two ports."""
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text())["_roce_switch_cli_owned_by"][nos]
    ports = f"({'|'.join(map(re.escape, PORTS[nos]))})"
    environment = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701  (as Ansible does)
    return [
        environment.from_string(one).render(fabric=fabric, _roce_switch_port_pattern=ports)
        for one in variables
    ]


def render(nos: str, fabric: dict[str, Any], ports: list[dict[str, Any]] | None = None) -> Any:
    """The wanted configuration as a structure; `ports`: other than those of two hosts."""
    ports, lossless = cabling(nos) if ports is None else ports, general.lossless_priorities(fabric)
    if nos == "linux":
        request = {
            "roce": fabric["roce"],
            "mtu_bytes": fabric["mtu_bytes"]["link"],
            "ports": [entry["port"] for entry in ports],
        }
        return leaf.wanted(request)
    if nos == "sonic":
        return sonic.tables(fabric, ports, lossless, PLATFORM, LOOKUP)
    if nos == "enterprise_sonic":
        return enterprise.compare(fabric, ports, lossless, {}, {})["wanted"]
    if nos == "cumulus":
        return nvue.tree(fabric, ports)
    return [list(path) for path in cli.paths(cli_text(nos, fabric, ports))]
