"""What the run's snapshot says: parts that differ, hosts that are one machine, clocks that are off."""

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from shakedown.plan.jobs import job_and_attempt
from shakedown.records.plan import Plan, PlanItem
from shakedown.records.reading import BadInput, loads, read_evidence
from shakedown.records.results import Component, Measurement, Part, RunProblem, Snapshot
from shakedown.records.wording import natural_key, number
from shakedown.run.folder import INVENTORY, RAW, Run

# What unmunge(1) says of a credential that the clocks of two hosts spoil.
OF_CLOCKS = ("Rewound credential", "Expired credential")


def clock_offset(inventory: Snapshot, node: str, limit_s: float) -> tuple[float | None, str]:
    """Return the offset in seconds, without its sign, and what there is to say of it.

    None if it cannot be told on which side of the limit it is.
    """
    ahead = inventory.ahead_s(node)
    if ahead is None:
        who = node if all(reading.host != node for reading in inventory.clocks) else "the submit host"
        return None, f"the clock of {who} was not read"
    low, high = ahead
    off = abs(low + high) / 2
    exact = (high - low) / 2
    said = next((r.munge for r in inventory.clocks if r.host == node and r.munge in OF_CLOCKS), "")
    munge = f"; munge refuses credentials: {said}" if said else ""
    submit = inventory.submit or "the submit host"
    if max(abs(low), abs(high)) <= limit_s or low > limit_s or high < -limit_s:
        way = "ahead of" if low + high > 0 else "behind"
        bound = f"at most {number(limit_s)} s allowed"
        return off, f"{_seconds(off)} s {way} {submit}'s (± {_seconds(exact)} s), {bound}{munge}"
    return None, (
        f"the clock is between {number(low)} and {number(high)} s ahead of {submit}'s: whether that is at "
        f"most {number(limit_s)} s cannot be told over so slow a connection{munge}"
    )


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


# Two names for one machine measure it against itself, through no cable at all, and pass as two.

# What a running machine has to itself: attribute of the node, and how it is called. One boot is one machine.
BOOT = "boot_id"
_OF_NODE = {
    "machine_id": "machine id",
    BOOT: "boot id",
    "serial": "serial number",
    "board_serial": "serial number of the board",
}
_OF_NIC = {"mac": "MAC address", "node_guid": "RDMA node GUID"}
# What vendors leave in a serial number that nobody set.
_NO_SERIAL = re.compile(
    r"(?i)|none|n/?a|unknown|not (specified|available|applicable|provided)|default string"
    r"|to be filled by o\.?e\.?m\.?|(system|chassis|base ?board|board) serial number"
    r"|0+|x+|\.+|0?123456789|invalid"
)
_NO_ADDRESS = re.compile(r"[0:.-]*")
# Nodes that boot one image have one SSH host key on purpose: it proves nothing alone, and is only named.
_KEYS = "ssh_host_keys"
# A NIC of the machine itself; the BMC's gadget on USB has one address in every server of a vendor.
_ON_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
CLONED = "cloned images: give each its own (rm /etc/machine-id && systemd-machine-id-setup, then reboot)"


def shared_identities(inventory: Snapshot, nodes: Collection[str]) -> Iterator[tuple[str, int | None, str]]:
    """Yield (host, how many of its identities another of `nodes` has too, which) for every host seen.

    None instead of a number: the snapshot tells nothing by which the machine could be known.
    """
    parts_of = _by_host(inventory, nodes)
    known = {host: _identities(parts) for host, parts in parts_of.items()}
    keys = {host: {p.attributes.get(_KEYS, "") for p in parts} - {""} for host, parts in parts_of.items()}
    texts: dict[str, list[str]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    for pair in combinations(sorted(known, key=natural_key), 2):
        both = known[pair[0]] & known[pair[1]]
        if not both:
            continue
        words = _words(pair, dict(sorted(both)), keys=bool(keys[pair[0]] & keys[pair[1]]))
        for host in pair:
            texts[host].append(words)
            counts[host] += len(both)
    for host in sorted(known, key=natural_key):
        if not known[host]:
            told = f"the snapshot of {host} has no machine id, boot id, serial number, MAC or node GUID"
            yield host, None, f"{told}: nothing tells it from another machine"
        else:
            yield host, counts[host], "; ".join(texts[host][:3])


def _by_host(inventory: Snapshot, nodes: Collection[str]) -> dict[str, list[Component]]:
    found: dict[str, list[Component]] = {}
    for part in inventory.components:
        if part.host in nodes:
            found.setdefault(part.host, []).append(part)
    return found


def _identities(parts: list[Component]) -> set[tuple[str, str]]:
    """Return (kind, value) of everything that only this machine may have."""
    found: set[tuple[str, str]] = set()
    for part in parts:
        values = part.attributes
        if part.kind == "node":
            for key in _OF_NODE:
                value = values.get(key, "").strip()
                if value and not ("serial" in key and _NO_SERIAL.fullmatch(value)):
                    found.add((key, value))
        elif part.kind == "nic" and _ON_PCI.match(values.get("pci", "")):
            found |= _addresses(values)
    return found


def _addresses(values: dict[str, str]) -> set[tuple[str, str]]:
    one_each = ((key, value) for key in _OF_NIC for value in values.get(key, "").lower().split())
    return {(key, value) for key, value in one_each if not _NO_ADDRESS.fullmatch(value)}


def _words(pair: tuple[str, str], both: dict[str, str], *, keys: bool) -> str:
    """Say what two hosts share, and what that means."""
    names = {**_OF_NODE, **_OF_NIC}
    what = ", ".join(
        f"same {names[kind]}{f' {both[kind]}' if kind in _OF_NIC else ''}" for kind in names if kind in both
    ) + (", same SSH host keys" if keys else "")
    who = " and ".join(pair)
    if BOOT in both:
        return f"{who} are one machine: {what}"
    if set(both) == {"machine_id"}:
        # MACs and boot differ: two machines made from one image.
        return f"{who} have the {what}, but nothing else in common: {CLONED}"
    return f"{who} look like one machine: {what}"


# A class is what was sold as one: NICs of one board, GPUs of one name, nodes of one product. A member that
# differs from most of its class is odd; without a majority, all of them are odd.

# How many GPUs, NICs and drives a node has, by what they are called.
_COUNTED = {
    "gpu": ("gpus", ("name",)),
    "nic": ("nics", ("pci_id", "driver")),
    "drive": ("drives", ("model",)),
}
# Of nodes, what must be alike among those under test: a submit host may have less.
_NODE = (
    *("vendor", "bios_version", "bios_date", "bmc_firmware", "virtual"),
    *("cpu", "cpu_microcode", "cpus", "sockets", "cores_per_socket", "threads_per_core"),
    *("memory_kib", "memory_modules", "memory_module_mib", "memory_mts"),
    *("os", "kernel", "kernel_options", "iommu", *(name for name, _ in _COUNTED.values())),
)
_GPU = (
    *("vbios_version", "driver_version", "memory_mib", "power_limit_w"),
    *("nvlinks", "pcie_generation", "pcie_width", "persistence_mode", "mig_mode_current"),
)
# For each kind: what makes a class (the first attribute that is there), and what must be alike in it.
_CLASSES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "node": (("product",), _NODE),
    "nic": (("psid", "board", "pci_id", "driver"), ("driver", "firmware", "driver_version", "pcie")),
    "gpu": (("name",), _GPU),
    "software": ((), ("version",)),
    "drive": (("model",), ("firmware", "size_bytes")),
}
PARTS = ("node", "nic", "gpu", "software")  # each a cell of its own; drives are told of their node
_OF_SLOT = ("pcie", "pcie_width")
# By how much the memory of like nodes may differ: the kernel keeps some for itself. One module of 32 is 3 %.
_LIKE_MEMORY = 0.02


def odd_parts(
    inventory: Snapshot, under_test: Collection[str] | None = None, bought: Mapping[str, str] | None = None
) -> Iterator[tuple[str, str, int, str]]:
    """Yield (host, kind, how many attributes are odd, which) for every host and kind that it has.

    Hosts that are no nodes (switches) are left out: their kinds differ by design. `under_test`: the nodes
    that must have the tools that others of their product have; a submit host need not. None: all nodes.
    `bought`: the class that each node was bought as, where the site says it: it is held against that alone.
    """
    nodes = {c.host for c in inventory.components if c.kind == "node"}
    parts = [part for part in inventory.components if part.host in nodes and part.kind in _CLASSES]
    tested = nodes if under_test is None else nodes & {*under_test}
    counted: dict[tuple[str, str], list[str]] = {}
    values: dict[tuple[str, str, str], list[tuple[Component, str]]] = defaultdict(list)
    classes, bought = _classes_of_silent_nics(parts), bought or {}
    products = {part.host: part.attributes.get("product", "") for part in parts if part.kind == "node"}
    for part in (*_with_amounts(parts, tested), *_missing_tools(parts, tested, bought)):
        if part.kind in PARTS:
            counted.setdefault((part.host, part.kind), [])
        group = part.name if part.kind == "software" else classes.get((part.host, part.name), _class(part))
        group = f"{bought.get(part.host, '')} {group}"
        for key in _CLASSES[part.kind][1]:
            if (part.kind not in ("node", "drive") and key not in _OF_SLOT) or part.host in tested:
                # A link is held to those of its slot: a machine may have a like board in a narrow one, too.
                alike = f"{group} {products.get(part.host, '')} {part.name}" if key in _OF_SLOT else group
                values[part.kind, alike, key].append((part, part.attributes.get(key, "")))
    for (kind, _, key), members in values.items():
        counts = Counter(value for _, value in members).most_common(3)
        if len(counts) == 1:
            continue
        (first, often), (_, next_often) = counts[:2]
        several = ", ".join(f"{value or 'nothing'} on {number}" for value, number in counts)
        for part, value in members:
            if often > next_often and value == first:
                continue
            what = key if kind == "node" else f"{part.name} {key}"
            most = (
                f"{first or 'nothing'} on {often} others"
                if often > next_often
                else f"and the class has no majority ({several})"
            )
            told = counted.setdefault((part.host, "node" if kind == "drive" else kind), [])
            told.append(f"{what} is {value or 'not there'}, {most}")
    for (host, kind), odd in counted.items():
        yield host, kind, len(odd), "; ".join(odd)


def is_card(nic: Part) -> bool:
    """Whether a NIC is a function of a card on PCI, and none that a host made up."""
    return bool(_ON_PCI.match(nic.attributes.get("pci", ""))) and "virtual_function" not in nic.attributes


def _with_amounts(parts: Collection[Component], under_test: Collection[str]) -> Iterator[Component]:
    """Yield the parts; each node under test with its GPUs, NICs, drives in words, and memory to compare."""
    kinds: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for part in parts:
        told = part.attributes
        of_machine = part.kind != "nic" or (
            _ON_PCI.match(told.get("pci", "")) and "virtual_function" not in told
        )
        if part.kind in _COUNTED and of_machine:
            name = next((told[key] for key in _COUNTED[part.kind][1] if told.get(key)), "unknown")
            kinds[part.host, part.kind][name] += 1
    memory = _like_memory(part for part in parts if part.kind == "node" and part.host in under_test)
    for part in parts:
        if part.kind != "node" or part.host not in under_test:
            yield part
            continue
        counts = {
            name: ", ".join(f"{n} x {one}" for one, n in sorted(kinds[part.host, kind].items()))
            for kind, (name, _) in _COUNTED.items()
        }
        yield part.model_copy(
            update={"attributes": {**part.attributes, "memory_kib": memory[part.host], **counts}}
        )


def _like_memory(nodes: Iterable[Component]) -> dict[str, str]:
    """Return each node's memory as told, where it is like another's as that one's figure."""
    found: dict[str, str] = {}
    usual: list[int] = []
    for node in sorted(nodes, key=lambda one: natural_key(one.host)):
        told = node.attributes.get("memory_kib", "")
        if told.isdecimal() and len(told) < 16:
            size = int(told)
            like = next((one for one in usual if abs(size - one) <= _LIKE_MEMORY * one), size)
            if like == size:
                usual.append(size)
            told = str(like)
        found[node.host] = told
    return found


def _class(part: Component) -> str:
    return next((part.attributes[key] for key in _CLASSES[part.kind][0] if part.attributes.get(key)), "")


def _missing_tools(
    parts: Collection[Component], under_test: Collection[str], bought: Mapping[str, str]
) -> Iterator[Component]:
    """Yield, without a version, each tool that a node told nothing of and others of its product have.

    A node that told of no tool at all is not held against the others: nothing is known of it.
    """
    products = {
        part.host: f"{bought.get(part.host, '')} {part.attributes.get('product', '')}"
        for part in parts
        if part.kind == "node"
    }
    tools: dict[str, set[str]] = defaultdict(set)
    of_product: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        if part.kind == "software" and part.host in under_test:
            tools[part.host].add(part.name)
            of_product[products[part.host]].add(part.name)
    for host, own in tools.items():
        for name in sorted(of_product[products[host]] - own):
            yield Component(host=host, kind="software", name=name)


def _classes_of_silent_nics(parts: Collection[Component]) -> dict[tuple[str, str], str]:
    """Return, by host and name, the class of RDMA NICs that told neither their board nor their firmware.

    One that does not answer is of the class that most NICs of its driver have, or, if it did not tell even
    that, most of its name: alone in a class of its own it would be like all others of it.
    """
    akin: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    silent: list[Component] = []
    for part in parts:
        told = part.attributes
        if part.kind != "nic" or not told.get("rdma_device"):
            continue
        if told.get("firmware"):
            akin["driver", told.get("driver", "")][_class(part)] += 1
            akin["name", part.name][_class(part)] += 1
        elif not (told.get("psid") or told.get("board")):
            silent.append(part)
    found: dict[tuple[str, str], str] = {}
    for part in silent:
        driver = part.attributes.get("driver", "")
        if alike := akin.get(("driver", driver) if driver else ("name", part.name)):
            found[part.host, part.name] = min(alike, key=lambda name: (-alike[name], name))
    return found


UNIFORM, IDENTITY, CLOCK, BOUGHT = "inventory", "identity", "clock", "ordered"


def snapshot_measurements(run: Run) -> Iterator[Measurement]:
    """Yield from `inventory.json` each node's odd parts, what it shares with another, and its clock's offset.

    Cells of a snapshot that cannot be read get no value, and the reason.
    """
    plan = run.plan
    planned = {
        (item.test, node, item.params.get("part")): item
        for item in plan.items
        if item.test in (UNIFORM, IDENTITY, CLOCK)
        for nodes in item.nodes
        for node in nodes
    }
    if not planned:
        return
    try:
        found = run.inventory
    except BadInput as refused:
        problem = RunProblem(kind="parse", message=f"{INVENTORY}: {refused.what}"[:2000])
        for (_, host, _), item in planned.items():
            yield measured(plan, item, host, None, "", problem)
        return
    if found is None:
        return  # planned and absent: the verdict says NOT-RUN
    alike = {host for test, host, _ in planned if test == UNIFORM}
    classes = {node: str(i.params["class"]) for i in plan.items if i.test == BOUGHT for (node,) in i.nodes}
    links = _unlike_their_orders(found, run)
    for host, part, odd, detail in odd_parts(found, alike, classes):
        # The inventory is of more than what is under test: the submit host, switches.
        if (uniform := planned.get((UNIFORM, host, part))) is not None:
            of_links = links.get(host, []) if part == "nic" else []
            words = "; ".join([*filter(None, [detail]), *of_links])
            yield measured(plan, uniform, host, odd + len(of_links), words)
    nodes = {host for test, host, _ in planned if test == IDENTITY}
    for host, shared, detail in shared_identities(found, nodes):
        problem_of = None if shared is not None else RunProblem(kind="setup", message=detail[:2000])
        yield measured(plan, planned[IDENTITY, host, None], host, shared, detail, problem_of)
    for (test, host, _), item in planned.items():
        if test == CLOCK:
            offset, detail = clock_offset(found, host, plan.references[item.reference].gate)
            unknown = None if offset is not None else RunProblem(kind="not-run", message=detail)
            yield measured(plan, item, host, offset, "" if unknown else detail, unknown)


def _unlike_their_orders(inventory: Snapshot, run: Run) -> dict[str, list[str]]:
    """Return by node what its NICs under test have otherwise than the job that reads settings wants or found.

    The snapshot was taken at another time and by other programs: two witnesses of one NIC must agree.
    """
    wanted: dict[str, dict[str, dict[str, Any]]] = {}
    with contextlib.suppress(BadInput, OSError):
        specs = [spec for spec in run.planned_jobs.jobs if spec.kind == "settings"]
        for node, of in ((n, e) for spec in specs for n, e in spec.settings.get("expect", {}).items()):
            wanted.setdefault(node, {}).update(of)
    reports = sorted((run.place / RAW).glob("config.settings*.a*"), key=lambda p: job_and_attempt(p.name)[1])
    nics = {(p.host, p.attributes.get("netdev", p.name)): p for p in inventory.components if p.kind == "nic"}
    hosts = {host for host, _ in nics}
    found: dict[str, list[str]] = defaultdict(list)
    for node, netdev, expected in ((n, d, e) for n, of in wanted.items() for d, e in of.items()):
        if node not in hosts or "ipv4" not in expected:  # of the whole node, not of a NIC
            continue
        if (node, netdev) not in nics:
            found[node].append(f"{netdev} is not in the snapshot")
            continue
        gbps, mac = expected.get("link.speed_gbps"), _read_back(reports, node, netdev).get("mac")
        told = nics[node, netdev].attributes
        for key, value, who in (
            ("mtu_bytes", expected.get("mtu.host_bytes"), "the intent"),
            ("speed_mbps", None if gbps is None else round(1000 * gbps), "the intent"),
            ("mac", mac, "the read-back"),
        ):
            if value is not None and told.get(key, "").lower() != str(value).lower():
                found[node].append(f"{netdev} {key} is {told.get(key) or 'not there'}, {who} has {value}")
    return found


def _read_back(reports: Sequence[Path], node: str, netdev: str) -> dict[str, Any]:
    """Return the settings of a NIC by key, as the last job found them; what cannot be read tells nothing."""
    for report in reversed(reports):
        with contextlib.suppress(BadInput, OSError, ValueError, LookupError, TypeError):
            read = loads(read_evidence(report / f"settings.{node}.{netdev}.json"))
            return {str(one["key"]): one["found"] for one in read["settings"]}
    return {}


def measured(
    plan: Plan, item: PlanItem, host: str, value: float | None, detail: str, problem: RunProblem | None = None
) -> Measurement:
    """Return what a snapshot says of one host for a planned block; None: it says nothing, for a reason."""
    told = detail[:1000] or None
    return item.measured(plan.run, (host,), value, state="COMPLETED", detail=told, problem=problem)
