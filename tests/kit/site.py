"""Sites that tests plan: the intent of a small fabric, and what Ansible says of its hosts."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shakedown.benchmarks.planning import make_plan, site_of
from shakedown.benchmarks.registry import Acceptance
from shakedown.intent.site import NoFabric, Site
from shakedown.plan.jobs import Jobs
from shakedown.records.plan import Plan
from shakedown.references.catalogue import Catalogue
from shakedown.references.files import load_catalogue

CHECKOUT = Path(__file__).parents[2]
WHERE = Path("inventories/x")
CREATED = "2026-01-01T00:00:00Z"
# The intent of every fabric of a test; `roce` and `fabric` give copies, to be changed at will.
_ROCE: dict[str, Any] = {"dscp": 26, "priority": 3, "traffic_class": 3, "queue": 3}
_ROCE |= {"cnp": {"dscp": 48, "priority": 6, "traffic_class": 6, "queue": 6}}
_ROCE |= {"ecn": {"min_bytes": 1000, "max_bytes": 2000, "mark_percent": 5}, "pfc": {"enabled": True}}


def roce(**changes: object) -> dict[str, Any]:
    """Return the intent of the lossless class; None for a key takes it out."""
    return {key: value for key, value in copy.deepcopy({**_ROCE, **changes}).items() if value is not None}


def fabric(rails: int = 1, subnet: str = "10.{}.0.0/24", **changes: object) -> dict[str, Any]:
    """Return the intent of a fabric with so many rails."""
    return {
        "system": "site",
        "profile": "site",
        "link_speed_gbps": 400,
        "mtu_bytes": {"link": 9216, "host": 9000, "rdma": 4096},
        "roce": roce(),
        "rails": [{"name": f"rail{r}", "subnet": subnet.format(r)} for r in range(rails)],
        **changes,
    }


def lab_fabric(rails: int = 2, **changes: object) -> dict[str, Any]:
    """Return the intent of the lab's kind of fabric."""
    lab = {"system": "lab", "profile": "lab", "mtu_bytes": {"link": 9000, "host": 9000, "rdma": 4096}}
    return fabric(rails, "10.10.{}.0/24", **{**lab, "link_speed_gbps": 25, **changes})


def nic(
    rail: int = 0, netdev: str = "eth2", rdma: str = "mlx5_0", ipv4: str = "10.0.0.1", **more: object
) -> dict[str, Any]:
    """Return a NIC as a site holds it."""
    return {"rail": f"rail{rail}", "rdma_device": rdma, "netdev": netdev, "ipv4": ipv4, **more}


def inventory(
    nodes: Sequence[str], acceptance: dict[str, Any], own_fabric: dict[str, Any], stride: int = 0
) -> dict[str, Any]:
    """Return what `ansible-inventory --list` prints for nodes with a NIC a rail on one leaf.

    `stride`: ports of the leaf that a rail takes, as many as there are nodes if 0.
    """
    hosts = {
        name: {
            "fabric": own_fabric,
            "acceptance": acceptance,
            "mgmt_ip": f"10.20.0.{i}",
            "fabric_nics": [
                nic(r, f"fab{r}", f"rxe{r}", f"10.10.{r}.{i}/24")
                | {"leaf": "leaf0", "leaf_port": f"swp{port + i}"}
                for r in range(len(own_fabric["rails"]))
                for port in [r * (stride or len(nodes))]
            ],
        }
        for i, name in enumerate(nodes, start=1)
    }
    return copy.deepcopy({"_meta": {"hostvars": hosts}, "compute": {"hosts": [*nodes]}})


def document(nodes: int = 2) -> dict[str, Any]:
    """Return what `ansible-inventory --list` prints for a small site of the lab's kind."""
    ib_write = {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 9, "rails_at_once": ["one", "all"]}
    asked = {"perftest": [ib_write], "mpi": {"allreduce": {"min_bytes": 8, "max_bytes": 64}}}
    intent = lab_fabric(roce=roce(ecn={"min_bytes": 1024, "max_bytes": 2048, "mark_percent": 5}))
    return inventory([f"n{i}" for i in range(1, nodes + 1)], asked, intent)


def one_host() -> dict[str, Any]:
    """Return a site of one host, as `ansible-inventory --list` prints it."""
    inventory = document(1)
    host = inventory["_meta"]["hostvars"]["n1"]
    host["fabric"] = {"system": "lab", "profile": "lab", "no_fabric": True}
    host["acceptance"] = {"mpi": {"allreduce": {"min_bytes": 8, "max_bytes": 64}}}
    del host["fabric_nics"]
    return inventory


def hosts(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the variables of each host of an inventory, to be changed."""
    return list(document["_meta"]["hostvars"].values())


def with_nics(own_fabric: dict[str, Any], nodes: Sequence[str], **sections: Any) -> Site:
    """Return a site whose nodes have one NIC each; `acceptance` and other sections may be given."""
    return Site.model_validate(
        {
            "fabric": own_fabric,
            "nics": {n: [nic(ipv4=f"10.0.0.{i}")] for i, n in enumerate(nodes, start=1)},
            "addresses": {n: f"192.0.2.{i}" for i, n in enumerate(nodes, start=1)},
            **sections,
            "acceptance": Acceptance.model_validate(
                {"config": {}, "counter_tests": False} | sections.get("acceptance", {})
            ),
        }
    )


def one_node(profile: str, gpus: int = 0, programs: dict[str, str] | None = None, **acceptance: Any) -> Site:
    """Return a site of one node without a fabric; `programs`: paths by their name in `software`."""
    return Site(
        fabric=NoFabric(system="one", profile=profile, no_fabric=True),
        acceptance=Acceptance(**{"counter_tests": False, "software_check": False, **acceptance}),
        nics={"n1": ()},
        addresses={"n1": "127.0.0.1"},
        gpus={"n1": gpus} if gpus else {},
        software={name: {"from": {"path": path}} for name, path in (programs or {}).items()},
    )


def plan_site(
    site: Site | dict[str, Any], catalogue: Catalogue | Sequence[str | Path] = ("lab",), **more: Any
) -> tuple[Plan, Jobs]:
    """Plan a site, or the site of an inventory, with the references of these profiles."""
    found = catalogue if isinstance(catalogue, Catalogue) else load_catalogue([*catalogue])
    made = site_of(site, WHERE) if isinstance(site, dict) else site
    return make_plan(made, found, **{"run": "r1", "created": CREATED, **more})
