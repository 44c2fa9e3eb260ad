"""Delivered against ordered: every item of `ordered:` is a cell of each node or switch of its class."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from shakedown.benchmarks.config.odd_parts import BOUGHT, is_card, measured
from shakedown.benchmarks.config.versions import NUMBER, of_switch, same
from shakedown.intent.ordered import is_model, items, size_bytes, words
from shakedown.nos.registry import known
from shakedown.physics.host_links import by_driver_name, by_name, is_of_model
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.records.base import Params
from shakedown.records.plan import Plan, PlanItem
from shakedown.records.results import Component, Measurement, Part, RunProblem
from shakedown.records.wording import number
from shakedown.run.folder import Run

TEST, METRIC, COUNT = BOUGHT, "differs", "count"
# How much of a node's memory its kernel may keep: pages' own records are 1.6 %, a crash kernel 1 %. Of 32
# modules one is 3.1 %.
_KERNEL_KEEPS = 0.03
_LIKE_SIZE = 0.03  # what a GPU or a drive has, beside what its sheet says in round figures

Parts = Sequence[Part]
Told = list[str]  # what was found, of each part that the item is about; empty: nothing tells it
Fits = Callable[[str, str], bool]  # of wanted and found


def plan_ordered(draft: PlanDraft) -> None:
    """Plan a cell for each item that was bought, on each node or switch of its class; and how many."""
    ordered = draft.site.ordered
    if ordered is None:
        return
    system = {switch.name: switch.nos for switch in draft.site.switches}
    for kind, there in (("nodes", draft.nodes), ("switches", tuple(system))):
        for name, members, one in ordered.members(kind):
            mine = [member for member in there if member in members]
            for what, wanted in items(one).items() if mine else ():
                silent = _unread(what, {system[m] for m in mine}) if kind == "switches" else ""
                _forbid(draft, name, kind, what, wanted, mine, silent)
            if one.count is not None and len(mine) == len(members):
                # Of no one node, so it is told of the class.
                _forbid(draft, name, kind, COUNT, str(one.count), [name], there=len(members))


def _unread(what: str, systems: Collection[str]) -> str:
    """Return why a switch does not tell an item, or nothing."""
    of_reading = {"system": "version", "model": "model"}.get(what)
    if all(nos == "linux" or (of_reading and getattr(known(nos), of_reading)) for nos in systems):
        return ""
    return f"the {what} of {', '.join(sorted(systems))} is not read here: look at the switch"


def _forbid(
    draft: PlanDraft,
    name: str,
    kind: str,
    what: str,
    wanted: str,
    nodes: list[str],
    silent: str = "",
    there: int = 0,
) -> None:
    source = f"ordered.yml, {kind}.{name}.{what}: {wanted}"
    reference = none_allowed(f"ordered.{kind}.{name}.{what}", source)
    params: Params = {"class": name, "what": what, **({"there": there} if there else {})}
    draft.forbid(reference, TEST, metric=METRIC, nodes=nodes, params=params, not_run=silent)


def ordered_measurements(run: Run) -> Iterator[Measurement]:
    """Yield whether each item that was bought differs on a node or switch: wanted, found and who says so."""
    plan = run.plan
    planned = [item for item in plan.items if item.test == TEST and not item.not_run]
    if not planned or run.snapshot is None:
        return  # the uniformity of the same snapshot says why it cannot be read
    parts: defaultdict[str, list[Component]] = defaultdict(list)
    for part in run.snapshot.components:
        parts[part.host].append(part)
    bought: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for item in planned:
        bought[str(item.params["class"])][str(item.params["what"])] = _wanted(plan, item)
    for item in planned:
        what, wanted = str(item.params["what"]), _wanted(plan, item)
        for (host,) in item.nodes:
            if what == COUNT:
                there = str(item.params["there"])
                yield _compared(plan, item, host, wanted, [there], "the inventory", _exactly)
            elif host in parts or what in _OF_SWITCH:  # else it was not read: NOT-RUN
                sold = bought[str(item.params["class"])]
                told, who, fits = _found(what, host, parts[host], sold, run.place)
                yield _compared(plan, item, host, wanted, told, who, fits)


def _wanted(plan: Plan, item: PlanItem) -> str:
    return plan.references[item.reference].source.partition(": ")[2]


def _compared(
    plan: Plan, item: PlanItem, host: str, wanted: str, told: Told, who: str, fits: Fits
) -> Measurement:
    what = str(item.params["what"])
    if not told or not all(told):
        unread = RunProblem(kind="not-run", message=f"{who} tells no {what} of {host}; ordered is {wanted}")
        return measured(plan, item, host, None, "", unread)
    differs = not all(fits(wanted, one) for one in told)
    found = ", ".join(dict.fromkeys(told))
    return measured(plan, item, host, int(differs), f"{what}: ordered {wanted}, found {found} ({who})")


def _exactly(wanted: str, found: str) -> bool:
    try:
        return float(wanted) == float(found)
    except ValueError:
        return wanted.casefold() == found.casefold()


def _version(wanted: str, found: str) -> bool:
    """Whether a version is the one that was ordered; numbers alone may stand for what they begin."""
    return _exactly(wanted, found) or (NUMBER.fullmatch(wanted) is not None and same(wanted, found))


def _named(wanted: str, found: str) -> bool:
    return words(wanted) <= words(found)


def _model_of_switch(wanted: str, found: str) -> bool:
    """Whether each part with a number is there: `Z9664F-ON` is what SONiC calls DellEMC-Z9664f-O64."""
    parts = [
        {word for word in re.findall(r"[a-z0-9]+", one.lower().replace("msn", "sn")) if not word.isalpha()}
        for one in (wanted, found)
    ]
    return parts[0] <= parts[1]


def _gpu(wanted: str, found: str) -> bool:
    if by_name(wanted):
        return is_of_model(found, wanted) is True
    return _named(wanted, found) and by_driver_name(wanted) == by_driver_name(found)


def _size(wanted: str, found: str) -> bool:
    return abs(size_bytes(found) - size_bytes(wanted)) <= _LIKE_SIZE * size_bytes(wanted)


def _enough(wanted: str, found: str) -> bool:
    return size_bytes(found) >= (1 - _KERNEL_KEEPS) * size_bytes(wanted)


def _counted(values: Told, divisor: float, unit: str = "") -> Told:
    """Return counts in another unit; what is none tells nothing."""
    return [
        f"{number(int(one) / divisor)}{unit}" if re.fullmatch(r"[0-9]{1,16}", one) else "" for one in values
    ]


# Of a node or switch itself: the attribute of the snapshot, and how the two are compared.
_OF_NODE: dict[str, tuple[str, Fits]] = {
    "product": ("product", _named),
    "model": ("product", _named),
    "cpu.model": ("cpu", _named),
    "cpu.sockets": ("sockets", _exactly),
    "cpu.cores": ("cores_per_socket", _exactly),
    "cpu.threads_per_core": ("threads_per_core", _exactly),
    "memory.modules": ("memory_modules", _exactly),
    "memory.speed_mts": ("memory_mts", _exactly),
    "memory.size": ("memory_kib", _enough),
    "memory.module": ("memory_module_mib", _size),
    "bios": ("bios_version", _version),
    "bmc": ("bmc_firmware", _version),
    "os": ("os", _version),
    "kernel": ("kernel", _version),
}
_OF_GPU: dict[str, tuple[str, Fits]] = {
    "memory": ("memory_mib", _size),
    "model": ("name", _gpu),
    "vbios": ("vbios_version", _exactly),
    "power_limit_w": ("power_limit_w", _exactly),
    "nvlinks": ("nvlinks", _exactly),
    "pcie_generation": ("pcie_generation", _exactly),
    "pcie_width": ("pcie_width", _exactly),
}
# Of a switch that is no Linux of ours: by its reading.
_OF_SWITCH: dict[str, Fits] = {"model": _model_of_switch, "system": _version}
# Attributes that are counted in another unit than they are ordered in.
_UNITS = {
    "memory_kib": (2**20, " GiB"),
    "memory_module_mib": (2**10, " GiB"),
    "memory_mib": (2**10, " GiB"),
    "size_bytes": (10**9, " GB"),
    "speed_mbps": (1000, ""),
}


def _found(
    what: str, host: str, parts: Sequence[Component], bought: Mapping[str, str], folder: Path
) -> tuple[Told, str, Fits]:
    """Return what tells an item, who says so, and how it is compared; bought: the items of its class."""
    group, _, rest = what.partition(".")
    nodes = [part for part in parts if part.kind in ("node", "switch")]
    if what in _OF_SWITCH and (read := of_switch(folder, host, model=what == "model")):
        return [read], "its reading", _OF_SWITCH[what]
    if what == "system" or what in _OF_NODE:
        attribute, fits = _OF_NODE.get(what, ("os", _version))
        return _all(nodes, attribute), "the snapshot", fits
    if group == "gpus":
        return _of_gpus(rest, [part for part in parts if part.kind == "gpu"])
    if group == "drivers":
        mine = [
            p for p in parts if (p.kind == "gpu" and rest == "nvidia") or p.attributes.get("driver") == rest
        ]
        return _all(mine, "driver_version"), "the kernel", _version
    name, _, key = rest.rpartition(".")
    model = bought.get(f"{group}.{name}.model", "")
    if group == "nics":
        return _of_nics(key, [p for p in parts if p.kind == "nic" and is_card(p)], model)
    return _of_drives(key, [p for p in parts if p.kind == "drive"], model)


def _all(parts: Parts, attribute: str) -> Told:
    found = [part.attributes.get(attribute, "") for part in parts]
    if attribute in _UNITS:  # modules of several sizes stand in one attribute
        return _counted([one for text in found for one in text.split(", ")], *_UNITS[attribute])
    return found


def _of_gpus(key: str, gpus: Parts) -> tuple[Told, str, Fits]:
    if key == COUNT:
        return [str(len(gpus))], "nvidia-smi", _exactly
    attribute, fits = _OF_GPU[key]
    return _all(gpus, attribute), "nvidia-smi", fits


def _of_nics(key: str, every: Parts, model: str) -> tuple[Told, str, Fits]:
    told = [_names(part, ("model", "psid", "board", "pci_id")) for part in every]
    if not any(told):
        return [], "lspci", _named
    mine = [part for part, names in zip(every, told, strict=True) if _named(model, names)]
    cards: defaultdict[str, int] = defaultdict(int)
    for part in mine:
        cards[part.attributes["pci"].partition(".")[0]] += 1
    if key == "model":
        return ([model] if mine else ["; ".join(dict.fromkeys(told)) or "none"]), "lspci", _named
    if key == "cards":
        return [str(len(cards))], "lspci", _exactly
    if key == "ports":
        return [str(ports) for ports in cards.values()] or ["0"], "lspci", _exactly
    if key == "rate_gbps":
        return _all(mine, "speed_mbps"), "the kernel", _exactly
    return _all(mine, key), "devlink and ethtool", _version


def _of_drives(key: str, every: Parts, model: str) -> tuple[Told, str, Fits]:
    mine = [part for part in every if _named(model, part.attributes.get("model", ""))]
    if key == "model":
        names = dict.fromkeys(_all(every, "model"))
        return ([model] if mine else ["; ".join(names) or "none"]), "the kernel", _named
    if key == COUNT:
        return [str(len(mine))], "the kernel", _exactly
    if key == "size":
        return _all(mine, "size_bytes"), "the kernel", _size
    return _all(mine, key), "the kernel", _version


def _names(part: Part, keys: Sequence[str]) -> str:
    return " ".join(part.attributes[key] for key in keys if part.attributes.get(key))


def delivered(parts: Parts) -> dict[str, str]:
    """Return what one node is made of, by the keys of `items`: what `discover` proposes as ordered.

    What its parts of one kind do not tell alike is left out.
    """
    found: dict[str, str] = {}
    nodes = [part for part in parts if part.kind == "node"]
    for what, (attribute, _) in _OF_NODE.items():
        found[what] = _one(_all(nodes, attribute))
    del found["model"]  # of switches
    found["cpu.model"] = found["cpu.model"] if is_model(found["cpu.model"]) else ""
    if found["memory.size"]:  # what the kernel keeps is not told: the next whole GiB, or the modules' sum
        gib = float(found["memory.size"].split()[0])
        modules, module = found["memory.modules"], found["memory.module"]
        whole = int(modules) * size_bytes(module) / 2**30 if modules and module else math.ceil(gib)
        found["memory.size"] = f"{whole:g} GiB" if gib > 16 else f"{math.ceil(gib * 1024)} MiB"
    gpus = [part for part in parts if part.kind == "gpu"]
    if gpus:
        found |= {"gpus.count": str(len(gpus)), "drivers.nvidia": _one(_all(gpus, "driver_version"))}
        found |= {f"gpus.{key}": _one(_all(gpus, attribute)) for key, (attribute, _) in _OF_GPU.items()}
    cards = [part for part in parts if part.kind == "nic" and is_card(part)]
    for driver in {part.attributes.get("driver", "") for part in cards} - {""}:
        mine = [part for part in cards if part.attributes.get("driver") == driver]
        found[f"drivers.{driver}"] = _one(_all(mine, "driver_version"))
    drives = [part for part in parts if part.kind == "drive"]
    for group, every, keys in (
        ("nics", cards, ("cards", "ports", "rate_gbps", "firmware")),
        ("drives", drives, ("count", "size", "firmware")),
    ):
        told = _of_nics if group == "nics" else _of_drives
        for model in filter(is_model, {_called(part) for part in every}):
            at = f"{group}.{re.sub(r'[^a-z0-9]+', '-', model.lower()).strip('-')}"
            found |= {f"{at}.model": model} | {
                f"{at}.{key}": _one(told(key, every, model)[0]) for key in keys
            }
    return {what: value for what, value in found.items() if value}


def _called(part: Part) -> str:
    model = part.attributes.get("model", "")
    return model if is_model(model) else part.attributes.get("pci_id", "")


def _one(told: Told) -> str:
    return told[0] if len({*told}) == 1 else ""
