"""The files of a site's folder: as text, with guesses marked `# check`, and written whole or not at all."""

import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from shakedown.discover.draft_site import FoundGpu, FoundNic, FoundNode, FoundSite
from shakedown.intent.places import span
from shakedown.nos.registry import SYSTEMS
from shakedown.records.base import Record
from shakedown.records.reading import BadInput
from shakedown.records.wording import count, natural_key, printable

# A comment; the reason follows after a colon.
MARK = "# check"


def guesses(inventory: Path) -> list[str]:
    """Return the lines of a site's folder that discover marked and nobody has read: FILE:LINE."""
    if not inventory.is_dir():
        return []
    found = []
    for file in sorted(inventory.rglob("*.yml")):
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        found += [f"{file}:{number}" for number, line in enumerate(lines, start=1) if f"{MARK}: " in line]
    return found


def notes(inventory: Path) -> list[str]:
    """Return what discover noted of nodes at the top of the folder's hosts, and nobody has taken away."""
    try:
        lines = (inventory / "hosts.yml").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    begin = f"{MARK}: "
    return [printable(line.removeprefix(begin))[:_COMMENT] for line in lines if line.startswith(begin)]


# Everything that came from outside is a name by a pattern without braces, or is cleaned for a comment,
# because Ansible evaluates templates in what it reads.

# Words that YAML would not read as text; every other name of the patterns may stand as it is.
_PLAIN = re.compile(
    r"^(?!(?:true|false|yes|no|on|off|null|none|y|n)$)[a-z][a-z0-9_./-]*$|^[0-9]+(\.[0-9]+){3}(/[0-9]+)?$",
    re.IGNORECASE,
)
_WITHOUT = "take it out here, and say access: {NAME: none} in switches of fabric.yml"
_CHECK = f"  {MARK}"
_MGMT = "the network of Slurm and MPI's start"
_COMMENT = 200  # `printable` words of the machines are cut at this

LEAF_PORTS = """\
---
# Every port with a cable, from the compute hosts' own cabling: it is stated once, there.
leaf_ports: >-
  {%- set ports = [] -%}
  {%- for host in groups['compute'] -%}
  {%- for nic in hostvars[host].fabric_nics if nic.leaf | default('') == inventory_hostname -%}
  {%- set _ = ports.append({'port': nic.leaf_port, 'host': host, 'netdev': nic.netdev, 'rail': nic.rail}) -%}
  {%- endfor -%}
  {%- endfor -%}
  {{ ports }}
"""


class SiteFile(Record):
    """One file of the folder."""

    path: str  # below the folder
    text: str


def files(site: FoundSite, name: str) -> tuple[SiteFile, ...]:
    """Return the files of a site called `name`."""
    found = [
        SiteFile(path="hosts.yml", text=_text(_hosts(site))),
        SiteFile(path="group_vars/all/fabric.yml", text=_text(_fabric(site, name))),
        SiteFile(path="group_vars/all/acceptance.yml", text=_text(_acceptance(site))),
        SiteFile(path="group_vars/all/site.yml", text=_text(_site(site))),
    ]
    if site.made_of:
        found.append(SiteFile(path="group_vars/all/ordered.yml", text=_text(_ordered(site.made_of))))
    if site.leaves:
        found.append(SiteFile(path="group_vars/leaf.yml", text=LEAF_PORTS))
        nos = f"roce_switch_nos: unknown{_CHECK}: {', '.join(SYSTEMS)}\n"
        found.append(SiteFile(path="group_vars/switches.yml", text=f"---\n{nos}"))
    return tuple(found)


def word(text: str) -> str:
    """Return text as YAML has it."""
    return text if _PLAIN.match(text) else json.dumps(text)


def _text(lines: Iterator[str]) -> str:
    return "\n".join(lines) + "\n"


def _said(text: str) -> str:
    """Return words of a machine for a comment: one line, nothing that a template begins with."""
    return printable(text).replace("{", "(").replace("}", ")")[:_COMMENT]


def _hosts(site: FoundSite) -> Iterator[str]:
    yield "# The hosts of the site, as they answered. What says `check` is a guess: correct or confirm it."
    for note in site.notes:
        yield f"{MARK}: {_said(note)}"
    managed = [node.name for node in site.nodes if node.address]
    if len(managed) > 1:
        yield f"{MARK}: mgmt_ip of {count(len(managed), 'node')}: {_MGMT}"
    alike = _alike(site.nodes)
    for (netdev, why, sure), names in alike.items():
        mark = "# " if sure else f"{MARK}: "
        yield f"{mark}not of the fabric: {_said(f'{netdev} of {span(names)}, {why}')}"
    yield "---"
    yield from ("all:", "  children:", "    slurm:", "      children:", "        submit:", "        compute:")
    if site.leaves:
        yield from ("    switches:", "      children:", "        leaf:")
    submit = {**site.connections.get(site.submit, {})}
    mark = "" if site.submit in site.connections else f"{_CHECK}: from where jobs are submitted"
    yield from ("submit:", "  hosts:", f"    {word(site.submit)}:{_inline(submit)}{mark}")
    if site.leaves:
        yield from ("leaf:", "  hosts:")
        for leaf in site.leaves:
            yield f"    {word(leaf)}:{_CHECK}: add ansible_host, or go without it: {_WITHOUT}"
    yield from ("compute:", "  hosts:")
    for node in site.nodes:
        yield f"    {word(node.name)}:"
        yield from _node(node, site, "" if len(managed) > 1 else f"{_CHECK}: {_MGMT}", alike)


def _inline(values: dict[str, int | str]) -> str:
    return " {" + ", ".join(f"{key}: {_value(one)}" for key, one in values.items()) + "}" if values else ""


def _value(value: int | str) -> str:
    return word(value) if isinstance(value, str) else str(value)


def _alike(nodes: Iterable[FoundNode]) -> dict[tuple[str, str, bool], list[str]]:
    """Return NICs that are not of the fabric for one reason on several nodes: said once, not on each node."""
    found: dict[tuple[str, str, bool], list[str]] = {}
    for node in nodes:
        for one in node.others:
            found.setdefault((one.nic.netdev, one.why, one.sure), []).append(node.name)
    return {nic: names for nic, names in found.items() if len(names) > 1}


def _node(
    node: FoundNode, site: FoundSite, managed: str, alike: Container[tuple[str, str, bool]]
) -> Iterator[str]:
    ways = site.connections.get(node.name, {})
    for key, value in ways.items():
        yield f"      {key}: {_value(value)}"
    if node.address:
        if "ansible_host" not in ways:
            yield f"      ansible_host: {word(node.address)}"
        yield f"      mgmt_ip: {word(node.address)}{managed}"
    if node.nics:
        yield "      fabric_nics:"
        yield from (f"        - {_nic(nic)}" for nic in node.nics)
    for one in node.others:
        if (one.nic.netdev, one.why, one.sure) in alike:
            continue
        mark = "" if one.sure else "check: "
        yield f"      # {mark}not of the fabric: {_said(f'{one.nic.netdev}, {one.why}')}"
    if node.gpus:
        yield "      gpus:"
        yield from (f"        - {_gpu(gpu)}" for gpu in node.gpus)


def _nic(nic: FoundNic) -> str:
    pairs = {"rail": nic.rail, "netdev": nic.netdev, "rdma_device": nic.rdma_device, "ipv4": nic.ipv4}
    if nic.leaf and nic.leaf_port:
        pairs |= {"leaf": nic.leaf, "leaf_port": nic.leaf_port}
    if nic.driver:
        pairs["driver"] = nic.driver
    mark = f"{_CHECK}: {_said(nic.guess)}" if nic.guess else ""
    return "{" + ", ".join(f"{key}: {word(value)}" for key, value in pairs.items()) + "}" + mark


def _gpu(gpu: FoundGpu) -> str:
    near = f", nearest_nic: {word(gpu.nearest_nic)}" if gpu.nearest_nic else ""
    return f"{{index: {gpu.index}, model: {word(_said(gpu.model))}{near}}}"


def _fabric(site: FoundSite, name: str) -> Iterator[str]:
    yield "# The fabric intent, from which hosts, switches, jobs and checks are made."
    yield "---"
    yield "fabric:"
    yield f"  system: {word(name)}"
    if not site.rails:
        yield "  profile: physical"
        yield f"  no_fabric: true{_CHECK}: no NIC of a RoCE fabric was found"
        return
    yield "  profile: physical  # floors derived from ceilings, until you sign figures of your own"
    yield f"  link_speed_gbps: {site.link_speed_gbps}{_mark(site.speed_guess)}"
    mtu = f"{{link: {site.link_mtu}, host: {site.host_mtu}, rdma: {site.rdma_mtu}}}"
    guess = "; ".join(filter(None, (site.mtu_guess, "link is a guess, no host tells a switch's MTU")))
    yield f"  mtu_bytes: {mtu}{_mark(guess)}"
    yield "  ip_version: 4"
    yield f"  roce:{_CHECK}: nothing of the class was read; values that vendors' guides agree on"
    yield from (
        "    dscp: 26",
        "    priority: 3",
        "    traffic_class: 3",
        "    queue: 3",
        "    ect: true  # ToS = dscp << 2 | 2 = 106",
        "    cnp: {dscp: 48, priority: 6, traffic_class: 6, queue: 6, scheduler: strict}",
        "    ecn: {min_bytes: 1048576, max_bytes: 2097152, mark_percent: 5}",
        "    pfc: {enabled: true, watchdog: {detect_ms: 200, restore_ms: 200, action: drop}}",
        f"    headroom: {{cable_m: 40}}{_CHECK}: the longest cable from a host to its leaf",
    )
    yield "  rails:"
    for rail in site.rails:
        yield f"    - {{name: {word(rail.name)}, subnet: {rail.subnet}}}{_mark(rail.guess)}"
    leaves = ", ".join(word(leaf) for leaf in site.leaves)
    told = (
        "spines are not seen from a host" if site.leaves else "no cabling is known: give --cabling FILE.csv"
    )
    yield f"  switches: {{leaves: [{leaves}], spines: [], uplinks_per_leaf_per_spine: 0}}{_mark(told)}"


def _mark(guess: str) -> str:
    return f"{_CHECK}: {_said(guess)}" if guess else ""


def _acceptance(site: FoundSite) -> Iterator[str]:
    several, gpus = len(site.nodes) > 1, any(node.gpus for node in site.nodes)
    model = site.gpu_model
    yield "# What acceptance measures. Start with this, and add to it: docs/reference/site.md has every key."
    yield "---"
    yield "acceptance:"
    yield f"  scope: {{gpu: {word(_said(model))}}}" if model else "  scope: {}"
    if site.rails and several:
        at_once = ", rails_at_once: [one, all]" if len(site.rails) > 1 else ""
        yield "  perftest:"
        yield f"    - {{test: ib_write_bw, size_bytes: 65536, duration_s: 10{at_once}}}"
        yield "    - {test: ib_read_bw, size_bytes: 65536, duration_s: 10}"
        yield "    - {test: ib_send_lat, size_bytes: 64, iterations: 5000}"
    if gpus:
        yield "  gpu_node:"
        yield "    nvbandwidth: [host_to_device_memcpy_ce, device_to_host_memcpy_ce]"
        yield "  # How fast each GPU multiplies, once software.pytorch is told (docs/how-to/software.md):"
        yield "  # gpu_rate: {work: [bf16]}"
    counts = {len(node.gpus) for node in site.nodes}
    if gpus and several and len(counts) == 1 and site.rails:
        yield "  nccl:"
        yield "    sweeps:"
        yield "      - {operations: [all_reduce], min_bytes: 1073741824, max_bytes: 8589934592, repeats: 3}"
        yield f"    expect: {{nvls: false, gdr: true}}{_CHECK}: a ring, with GPUDirect RDMA between nodes"
        yield "    variables: {NCCL_ALGO: Ring}"
    if site.only_memory:
        yield "  # No floor for memory is derived: plan with --learn, and sign what the first run measures."
        yield f"  stream: {{numa_nodes: {max(node.numa_nodes for node in site.nodes)}}}"


def _site(site: FoundSite) -> Iterator[str]:
    yield "# What is the site's own stays as it is: `manage` in docs/how-to/new-site.md."
    yield "---"
    yield f"shared_stage_path: /scratch/shakedown{_CHECK}: a folder that the submit host and all nodes share"
    yield "slurm:"
    if site.partition:
        yield f"  partition: {word(site.partition)}"
    else:
        yield f"  partition: all{_CHECK}: the partition whose nodes these are"
    for key, name in site.access.items():
        yield f"  {key}: {word(name)}"
    if site.max_time:
        yield f'  max_job_time: "{site.max_time}"'
    if site.silent:
        yield "# Each is NOT-RUN, unless `taken_out_by: NAME` stands beside its reason."
        yield "absent_nodes:"
        for name, why in site.silent.items():
            reason = json.dumps(_said(why) or "no reason was given")
            yield f"  {word(name)}: {{why: {reason}}}{_CHECK}: did not answer"


# Items of `ordered` that are numbers; versions are text, though they may look like one.
_NUMBERS = {
    *("count", "sockets", "cores", "threads_per_core", "modules", "speed_mts", "power_limit_w", "nvlinks"),
    *("pcie_generation", "pcie_width", "cards", "ports", "rate_gbps"),
}


def _ordered(made_of: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield what most nodes of each class are made of, as what was bought."""
    yield f"# What most nodes have.{_CHECK}: read it against what was bought"
    yield "---"
    yield "ordered:"
    yield "  nodes:"
    for name, members in _classes(made_of).items():
        yield f"    {word(name)}:"
        yield f"      nodes: [{', '.join(map(word, members))}]"
        yield f"      count: {len(members)}"
        tree: dict[str, Any] = {}
        for what in sorted({key for node in members for key in made_of[node]}):
            told = Counter(made_of[node].get(what, "") for node in members)
            value = max(told, key=lambda one: (told[one], one))
            if value:
                *above, last = what.split(".", 2)
                at = tree
                for key in above:
                    at = at.setdefault(key, {})
                at[last] = value
        yield from _tree(tree, "      ")


def _tree(tree: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield f"{indent}{word(key)}:"
            yield from _tree(value, f"{indent}  ")
        else:
            yield f"{indent}{word(key)}: {value if key in _NUMBERS else json.dumps(_said(value))}"


def _classes(made_of: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Return nodes by class: of one product, and alike in CPU and GPU with another one of it at least.

    A node that is like no other of its product is of the largest class of it, and will be named as odd.
    """
    kinds: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for node, told in made_of.items():
        alike = tuple(told.get(what, "") for what in ("cpu.model", "gpus.model"))
        kinds.setdefault(told.get("product", ""), {}).setdefault(alike, []).append(node)
    found: dict[str, list[str]] = {}
    for product, groups in kinds.items():
        several = {alike: nodes for alike, nodes in groups.items() if len(nodes) > 1}
        largest = max(groups, key=lambda alike: len(groups[alike]))
        for number, alike in enumerate(several or {largest: ()}):
            odd = [n for other, nodes in groups.items() if other not in several for n in nodes]
            nodes = sorted({*groups[alike], *(odd if alike == largest else ())}, key=natural_key)
            plain = re.sub(r"[^a-z0-9]+", "-", product.lower()).strip("-") or "nodes"
            name = plain[:40] + (f"-{number + 1}" if number else "")
            found[name if name not in found else f"{name}-{len(found)}"] = nodes
    return found


def write_folder(folder: Path, files: Iterable[SiteFile]) -> None:
    """Write the files into a new folder.

    Raises BadInput: something is there already, or the folder above it is missing.
    """
    if not folder.parent.is_dir():
        raise BadInput(
            "no such folder", fix="make it, or name a folder under inventories/", file=folder.parent
        )
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for file in files:
            path = aside / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text, encoding="utf-8")
        aside.chmod(0o755)
        # Renaming onto a folder with something in it fails, so that one made meanwhile stays as it is; an
        # empty one, or a link, would be replaced.
        if os.path.lexists(folder):
            raise BadInput("is there already", fix="name a new folder; nothing was written", file=folder)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
