#!/usr/bin/env python3
"""Hold rendered CONFIG_DBs against SONiC's own YANG models, with SONiC's own loader.

    sonic_yang.py BUILDIMAGE MODELS

BUILDIMAGE is a checkout of github.com/sonic-net/sonic-buildimage; MODELS a folder with its yang-models and
the yang-templates rendered with yang_model_type "py". Needs libyang 3 (cmake, libpcre2-dev) and its Python
binding, both with the patches of src/libyang3 and src/libyang3-py3 (but for debian.patch), and by pip ijson,
jsondiff, jsonpointer, tabulate, xmltodict, jinja2, pyyaml and pydantic. They are no dependency of this
project, so no test runs it by itself. docs/evidence/switches.md says what it said. Three platforms, 32 host
ports and 16 uplinks each.
"""

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import jinja2

sys.path[:0] = [str(Path(__file__).parents[1] / "unit/nos"), str(Path(__file__).parents[2])]
import rendering  # noqa: E402  (a folder of tests, no package)

# Folder of the platform, of its SKU, buffer model, and the file of the sizes (below the SKU).
PLATFORMS = (
    ("dell/x86_64-dell_z9664f-r0", "DellEMC-Z9664f-O64", "traditional", "pg_profile_lookup.ini"),
    (
        "arista/x86_64-arista_7060x6_64pe",
        "Arista-7060X6-64PE-256x200G",
        "traditional",
        "BALANCED/pg_profile_lookup.ini",
    ),
    ("mellanox/x86_64-nvidia_sn5600-r0", "ACS-SN5600", "dynamic", "pg_profile_lookup.ini"),
)
HOSTS, PORTS = 32, 48  # the rest are uplinks, with cables of another length


def factory(device: Path, platform: str, sku: str, model: str) -> dict[str, Any]:
    """What the platform's own files make of a new switch, as far as the rendered tables refer to it."""
    lines = (device / platform / sku / "port_config.ini").read_text().splitlines()
    heads = next(line for line in lines if line.startswith("# name")).split()[1:]
    ports = {}
    for line in [one for one in lines if one.strip() and not one.startswith("#")]:
        row = dict(zip(heads, line.split(), strict=False))
        # Mellanox keeps the speed in hwsku.json.
        ports[row.pop("name")] = {"speed": "800000", **row, "mtu": "9100", "admin_status": "up"}
    pools: dict[str, Any] = {
        "BUFFER_POOL": {
            "ingress_lossless_pool": {
                "type": "ingress",
                "mode": "dynamic",
                "size": "113620296",
                "xoff": "50653696",
            },
            "egress_lossless_pool": {"type": "egress", "mode": "static", "size": "113620296"},
        },
        "BUFFER_PROFILE": {
            "egress_lossless_profile": {
                "pool": "egress_lossless_pool",
                "size": "0",
                "static_th": "113620296",
            },
            "egress_lossy_profile": {"pool": "egress_lossless_pool", "size": "0", "dynamic_th": "2"},
        },
    }
    defaults = device / platform / sku / "buffers_defaults_t0.j2"
    if model == "traditional" and defaults.exists():
        # Other files only name the ports, which stand below anyway.
        text = re.sub(r"\{%-? *(include|import) .*?%\}", "", defaults.read_text())
        template = jinja2.Environment(autoescape=False).from_string(text)  # noqa: S701
        text = template.module.generate_buffer_pool_and_profiles().rstrip().rstrip(",")
        # Old references, `[BUFFER_POOL|name]`, as sonic-utilities' db_migrator rewrites them.
        pools = json.loads("{" + re.sub(r"\[\w+\|([^\]]+)\]", r"\1", text) + "}")
    return {
        "DEVICE_METADATA": {
            "localhost": {
                "hostname": "leaf1",
                "platform": platform.split("/")[1],
                "hwsku": sku,
                "buffer_model": model,
            }
        },
        "PORT": ports,
        **pools,
        # A switch that somebody uses.
        "DSCP_TO_TC_MAP": {"AZURE": {str(n): "1" for n in range(64)}},
        "PORT_QOS_MAP": {"global": {"dscp_to_tc_map": "AZURE"}},
        "VLAN": {"Vlan10": {"vlanid": "10"}},
    }


def main(buildimage: Path, models: Path) -> int:
    """Validate each platform, and the same with a planted violation, which must be found."""
    sys.path.insert(0, str(buildimage / "src/sonic-yang-mgmt"))
    import sonic_yang  # type: ignore[import-not-found]

    bad = 0
    for platform, sku, model, sizes in PLATFORMS:
        device = buildimage / "device"
        found = factory(device, platform, sku, model)
        names = list(found["PORT"])[:PORTS]
        ports: list[dict[str, Any]] = [{"port": name} for name in names]
        for entry in ports[HOSTS:]:
            entry |= {"role": "uplink", "cable_m": 5}  # a profile beside that of the hosts' 40 m
        fabric = rendering.intent()
        lookup = (device / platform / sku / sizes).read_text()
        wanted = rendering.sonic.tables(fabric, ports, [3], found, lookup)
        whole = rendering.sonic_change.merged(wanted, found)
        planted = copy.deepcopy(whole)
        planted["PFC_WD"][names[0]]["detection_time"] = "50"
        for label, config in (("rendered", whole), ("planted", planted)):
            yang = sonic_yang.SonicYang(str(models), print_log_enabled=False)
            yang.loadYangModel()
            try:
                yang.loadData(configdbJson=copy.deepcopy(config))
                yang.validate_data_tree()
                said = "0 violations"
            except sonic_yang.SonicYangException as error:
                said = f"REFUSED: {str(error).strip().splitlines()[-1][:200]}"
            without = sorted(set(yang.tablesWithOutYang) & set(wanted))
            print(f"{sku} ({model}), {len(names)} ports, {label}: {said}; tables without a model: {without}")
            bad += (
                (said != "0 violations" or bool(without)) if label == "rendered" else said == "0 violations"
            )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
