"""Recorded means judged: each field of a snapshot is held by a cell, or stands here with its reason."""

import ast
import json
from pathlib import Path

import pytest

from shakedown.benchmarks.config.odd_parts import odd_parts, shared_identities, snapshot_measurements
from shakedown.judge.verdict import judge
from shakedown.onnode import snapshot_probe
from shakedown.records.results import Snapshot
from shakedown.run.folder import Run

_OWN = "each machine's own; one that two have is named by the cell identity"
_CABLE = "cables of one rail differ in length and maker; what they do to bits is counted at both ends"
# What may change on one node without a word, and why.
TOLD = {
    ("node", "product"): "it makes the class that a node is held against; ordered.yml holds it",
    ("node", "serial"): _OWN,
    ("node", "board_serial"): _OWN,
    ("node", "machine_id"): _OWN,
    ("node", "boot_id"): _OWN,
    ("node", "ssh_host_keys"): "nodes of one image share them; a signature is held against them",
    ("nic", "netdev"): "by it the NIC is found; where it is of the fabric, the settings' cells hold it",
    ("nic", "rdma_device"): "the settings' cell rdma.device holds it, where the NIC is of the fabric",
    ("nic", "node_guid"): _OWN,
    ("nic", "mac"): "the NIC's own; held against the read-back, which this recorded run has not",
    ("nic", "psid"): "it makes the class of its firmware; ordered.yml may hold it",
    ("nic", "board"): "as psid",
    ("nic", "model"): "lspci's name of pci_id, which is held",
    ("nic", "serial"): _OWN,
    ("nic", "speed_mbps"): "held against the intent, where the site's NICs have a rate; else not asked for",
    ("nic", "mtu_bytes"): "held against the intent of the fabric's NICs; others' is the site's own",
    ("gpu", "index"): "a number that the driver gives; by it one node's outputs are put together",
    ("gpu", "pci"): "the slot; by it one node's outputs are put together",
    ("gpu", "uuid"): "the GPU's own; one that two nodes show is doubted by what the jobs' looks say",
    ("gpu", "serial"): "the GPU's own",
    ("drive", "serial"): "the drive's own",
    **{
        ("cable", key): _CABLE
        for key in (
            *("identifier", "vendor_name", "vendor_pn", "vendor_rev", "vendor_sn"),
            "cable_assembly_length",
        )
    },
}
_FUNCTIONS = {"processors": "node", "modules": "node", "kind_of": "nic"}
_FUNCTIONS |= {"node": "node", "nics": "nic", "gpus": "gpu", "drives": "drive", "software": "software"}


def written() -> dict[str, set[str]]:
    """Every attribute that the probe may write, by kind, from its source."""
    tree = ast.parse(Path(snapshot_probe.__file__).read_text())
    found: dict[str, set[str]] = {"cable": {k for kind, k in TOLD if kind == "cable"}}
    found["gpu"] = set(snapshot_probe._GPU)
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and (kind := _FUNCTIONS.get(function.name)):
            for one in ast.walk(function):
                if isinstance(one, ast.Dict):
                    keys = {k.value for k in one.keys if isinstance(k, ast.Constant)}
                    found.setdefault(kind, set()).update(keys)
    found["node"] -= {"MB", "GB", "TB"}
    return found


def another(value: str) -> str:
    """A value of the same kind that is another."""
    return str(int(value) // 2 or 7) if value.isdecimal() else f"x{value}"


def test_each_field_of_a_recorded_snapshot_is_judged_or_told(recorded_run):
    """Catches: a node with less memory, another BIOS or MTU than its like, which passes all 216 cells."""
    folder = recorded_run("lab_healthy")
    plan, file = Run(folder).plan, folder / "inventory.json"
    document = json.loads(file.read_text())

    def not_passed() -> int:
        file.write_text(json.dumps(document))
        verdict = judge(plan, list(snapshot_measurements(Run(folder))), [])
        return len(verdict.cells)  # those that passed are counted alone

    whole, silent = not_passed(), set()
    for part in document["components"]:
        for key, value in list(part["attributes"].items() if part["host"] == "n2" else ()):
            for other in (another(value), None):
                del part["attributes"][key]
                part["attributes"] |= {key: other} if other else {}
                if not_passed() == whole:
                    silent.add((part["kind"], key))
                part["attributes"][key] = value
    assert silent <= set(TOLD)
    # None stands in the list for good that a cell would hold.
    assert silent >= {("node", "product"), ("nic", "netdev"), ("nic", "mac"), ("nic", "speed_mbps")}


@pytest.mark.parametrize("kind", ["node", "nic", "gpu", "drive", "cable", "software"])
def test_each_field_that_the_probe_writes_is_judged_or_told(kind):
    """Catches: a new attribute of the probe that no cell holds and nobody explains."""
    parts = {
        (host, of): {key: "0000:17:00.0" if (of, key) == ("nic", "pci") else f"{key}" for key in keys}
        for host in ("n1", "n2", "n3")
        for of, keys in written().items()
    }
    own = ("machine_id", "boot_id", "serial", "board_serial", "mac", "node_guid")
    for (host, _), attributes in parts.items():
        attributes |= {key: f"{host}{key}" for key in own if key in attributes}
        attributes.pop("virtual_function", None)

    def doubted() -> bool:
        components = [
            {"host": host, "kind": of, "name": f"{of}0", "attributes": attributes}
            for (host, of), attributes in parts.items()
        ]
        document = {"schema": 1, "run": "r1", "taken": "now", "components": components}
        snapshot = Snapshot.model_validate(document)
        odd = any(count for _, _, count, _ in odd_parts(snapshot))
        return odd or any(count for _, count, _ in shared_identities(snapshot, {"n1", "n2", "n3"}))

    assert not doubted()
    silent = set()
    for key in written()[kind] | {key for of, key in TOLD if of == kind}:
        of_n2 = parts["n2", kind]
        kept = of_n2.get(key)
        of_n2[key] = f"other {key}"
        if not doubted():
            silent.add((kind, key))
        of_n2.pop(key) if kept is None else of_n2.update({key: kept})
    assert silent == {told for told in TOLD if told[0] == kind} - {("nic", "pci")}
