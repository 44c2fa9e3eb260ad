"""Asks the machines with one probe: by a Slurm job, or in one pass of an Ansible inventory."""

import base64
import binascii
import ipaddress
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from shakedown.intent.slurm_block import SlurmBlock, SlurmName
from shakedown.onnode import discover_probe
from shakedown.records.base import Document, Name, Record
from shakedown.records.program import ansible_environment, plain_environment
from shakedown.records.reading import BadInput, loads, read_as, read_plain, refusal
from shakedown.records.results import Part
from shakedown.slurm.client import Slurm, fields, parse_show_nodes
from shakedown.topology.host_map import Topology

# Interfaces (dev_valid_name in the kernel allows more), RDMA devices and drivers.
Device = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]*$")]
_OptionalDevice = Annotated[str, Field(max_length=64, pattern=r"^([A-Za-z0-9][A-Za-z0-9_.@-]*)?$")]
# Ports as switches name them: Ethernet1/1, hundredGigE 1/1, swp3s0.
PORT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_./: -]{0,63}$"
HostName = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


def _interface(text: str) -> str:
    ipaddress.IPv4Interface(text)
    return text


Ipv4 = Annotated[str, Field(max_length=18), AfterValidator(_interface)]


class NicAnswer(Record):
    """One interface of a node."""

    netdev: Device
    mac: Annotated[str, Field(max_length=64, pattern=r"^([0-9a-f]{2}(:[0-9a-f]{2}){5,19})?$")] = ""
    rdma: tuple[Device, ...] = ()
    link_layer: Annotated[str, Field(max_length=32, pattern=r"^[A-Za-z]*$")] = (
        ""  # Ethernet, InfiniBand, iWARP
    )
    driver: _OptionalDevice = ""
    speed_mbps: int | None = None  # -1: it does not say
    mtu_bytes: int | None = Field(default=None, ge=0, le=1 << 20)
    up: bool = True
    master: _OptionalDevice = ""  # the bond or bridge that it is part of
    virtual_function: bool = False
    ipv4: tuple[Ipv4, ...] = ()

    @property
    def gbps(self) -> int | None:
        """Its rate in Gb/s (10^9 bit/s), or None if it does not say."""
        return self.speed_mbps // 1000 if self.speed_mbps and self.speed_mbps >= 1000 else None


class NodeAnswer(Document):
    """What one node answered (`onnode/discover_probe.py`)."""

    schema_: Literal[1] = Field(alias="schema")
    host: HostName
    topology: Topology
    nics: tuple[NicAnswer, ...]
    default_interfaces: tuple[_OptionalDevice, ...] = ()
    lldp: Annotated[str, Field(max_length=2_000_000)] = ""
    parts: Annotated[tuple[Part, ...], Field(max_length=4096)] = ()  # what it is made of


_Way = Annotated[str, Field(max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@-]*$")]


class Connection(Record):
    """How Ansible reaches a host. Nothing else is taken over: other variables may run programs."""

    ansible_host: _Way | None = None
    ansible_port: int | None = Field(default=None, ge=0, le=65535)
    ansible_user: _Way | None = None
    ansible_connection: Literal["ssh", "local", "paramiko", "smart"] | None = None

    def given(self) -> dict[str, int | str]:
        """Return what is known, by variable."""
        return self.model_dump(exclude_none=True)


class Answers(Document):
    """What was asked for a site, and what was answered (`--record FILE`, `--from FILE`)."""

    nodes: dict[HostName, NodeAnswer] = Field(min_length=1)
    silent: dict[HostName, Annotated[str, Field(max_length=300)]] = Field(default_factory=dict)  # and why
    addresses: dict[
        HostName, Annotated[str, Field(max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$")]
    ] = Field(default_factory=dict)  # under which the nodes are reached, where that is known
    connections: dict[HostName, Connection] = Field(default_factory=dict)  # how Ansible reached them
    gres: dict[HostName, Annotated[int, Field(ge=0, le=1024)]] = Field(default_factory=dict)  # GPUs, by Slurm
    submit: HostName | None = None
    partition: Name | None = None
    max_time: Annotated[str, Field(max_length=32, pattern=r"^[0-9:-]*$")] = (
        ""  # of the partition; none: no limit
    )
    # Whose the job was that asked, and in which reservation: what the site's own jobs are to have.
    account: SlurmName | None = None
    qos: SlurmName | None = None
    reservation: SlurmName | None = None


def read_answers(file: Path) -> Answers:
    """Return recorded answers. Raises BadInput naming file and key."""
    fix = "write it with shakedown discover --record FILE"
    raw = read_plain(file, fix)
    if raw is None:
        raise BadInput("no such file", fix=fix, file=file)
    return read_as(Answers, raw, file=file, about="not recorded answers", fix=fix)


def answers_of(documents: dict[str, object], **more: object) -> Answers:
    """Return the documents of the nodes as answers. Raises BadInput naming the node."""
    nodes = {}
    for name, document in documents.items():
        try:
            nodes[name] = NodeAnswer.model_validate(document)
        except ValidationError as error:
            raise refusal(
                error, NodeAnswer, about=f"the answer of {name[:64]!r}", fix="is it this release's probe?"
            ) from None
    try:
        return Answers.model_validate({"nodes": nodes, **more})
    except ValidationError as error:
        raise refusal(error, Answers, about="the cluster's answers", fix="record them, and look") from None


_ONNODE = Path(discover_probe.__file__).parent
# A node with hundreds of PCI functions prints 150 kB; more than this was not printed by the probe.
_MOST_BYTES = 16_000_000
_LINE = re.compile(rf"{discover_probe.TAG} (\S{{1,128}}) (\d{{1,6}}) (\d{{1,6}}) ([A-Za-z0-9+/=]{{1,2000}})")

_PROBES = ("topology", "snapshot", "discover")
_PROGRAM = """\
import sys, types
package, onnode, probe, snapshot = (types.ModuleType(name) for name in (
    "shakedown", "shakedown.onnode", "shakedown.onnode.topology_probe", "shakedown.onnode.snapshot_probe"))
for module in (package, onnode, probe, snapshot):
    sys.modules[module.__name__] = module
onnode.topology_probe, onnode.snapshot_probe = probe, snapshot
exec(compile({topology!r}, "topology_probe.py", "exec"), probe.__dict__)
exec(compile({snapshot!r}, "snapshot_probe.py", "exec"), snapshot.__dict__)
exec(compile({discover!r}, "discover_probe.py", "exec"), {{"__name__": "__main__"}})
"""


def program() -> str:
    """Return the probe with what it needs, for `python3 -` on a node that has no Shakedown."""
    sources = {name: (_ONNODE / f"{name}_probe.py").read_text("utf-8") for name in _PROBES}
    return _PROGRAM.format(**sources)


def answers_in(text: str) -> dict[str, object]:
    """Return the document of every host whose lines are all there, from the mixed output of many.

    Raises BadInput: a host's lines do not belong together, or hold no document.
    """
    pieces: dict[str, dict[int, str]] = {}
    wanted: dict[str, int] = {}
    for line in text.splitlines():
        match = _LINE.search(line)
        if match is None:
            continue  # a site's login scripts and Slurm print lines of their own
        host, number, many, piece = match[1], int(match[2]), int(match[3]), match[4]
        if wanted.setdefault(host, many) != many or pieces.setdefault(host, {}).get(number, piece) != piece:
            raise BadInput(
                f"{host[:80]!r} answered twice, and not alike", fix="is that name given to two nodes?"
            )
        pieces[host][number] = piece
    return {
        host: _document(host, (found[number] for number in sorted(found)))
        for host, found in pieces.items()
        if set(found) == set(range(1, wanted[host] + 1))
    }


def _document(host: str, pieces: Iterable[str]) -> object:
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.b64decode("".join(pieces), validate=True), _MOST_BYTES)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise ValueError("it is too large or cut off")
        return loads(raw)
    except (ValueError, binascii.Error, zlib.error) as error:
        raise BadInput(f"the answer of {host[:80]!r} cannot be read: {error}", fix="discover again") from None


HOUSE = Path(__file__).resolve().parents[2]
_PLAYBOOK = "playbooks/discover.yml"


def ask_ansible(inventory: str) -> Answers:
    """Return what the hosts of group `compute` answer, or all hosts where there is no such group.

    Args:
        inventory: as `ansible-playbook -i` takes it: a folder, a file or `n1,n2,`.

    Raises BadInput: Ansible is missing or cannot read the inventory, or no host answered.
    """
    command = Path(sys.executable).with_name("ansible-playbook")
    found = str(command) if command.exists() else shutil.which("ansible-playbook")
    if found is None:
        raise BadInput(
            "ansible-core is not installed", fix="pip install 'shakedown[controller]', or run make setup"
        )
    if not (HOUSE / _PLAYBOOK).is_file():
        raise BadInput(f"no {_PLAYBOOK} here", fix="run it from a checkout of Shakedown, or use --slurm")
    if "," not in inventory and not Path(inventory).exists():
        raise BadInput(
            "no such inventory",
            fix="give a folder, a file, or a list of hosts that ends in a comma",
            file=inventory,
        )
    where = inventory if "," in inventory else str(Path(inventory).resolve())
    with tempfile.TemporaryDirectory(prefix="shakedown-discover-") as folder:
        probe, answers = Path(folder) / "probe.py", Path(folder) / "answers.json"
        probe.write_text(program(), encoding="utf-8")
        variables = [f"--extra-vars=discover_program={probe}", f"--extra-vars=discover_file={answers}"]
        done = subprocess.run(
            [found, "-i", where, _PLAYBOOK, *variables],
            cwd=HOUSE,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            env=ansible_environment(os.environ),
        )
        # Hosts that cannot be reached make its exit status 4; they are named below.
        if not answers.exists():
            lines = (done.stderr + done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
            words = next((line for line in lines if "ERROR" in line or "fatal" in line), lines[-1])
            raise BadInput(
                f"ansible-playbook: {words[:300]}", fix="mend the inventory, or see ansible -m ping"
            )
        return answers_from(loads(answers.read_bytes()))


def answers_from(written: Any) -> Answers:  # noqa: ANN401  (JSON of the playbook)
    """Return the answers in what the playbook wrote. Raises BadInput if no host answered."""
    documents: dict[str, object] = {}
    silent, connections, addresses = {}, {}, {}
    for host, seen in written["hosts"].items():
        found = answers_in(str(seen["text"]))
        if len(found) == 1:
            documents[host] = next(iter(found.values()))
            connections[host] = seen["ways"]
            if seen["mgmt_ip"]:
                addresses[host] = str(seen["mgmt_ip"])
        else:
            silent[host] = " ".join(str(seen["said"]).split())[:300] or "no answer"
    if not documents:
        first = next(iter(silent.items()), ("none", "group compute has no hosts"))
        raise BadInput(f"no host answered; {first[0]}: {first[1]}", fix="see ansible -m ping")
    return answers_of(
        documents,
        silent=silent,
        connections=connections,
        addresses=addresses,
        submit=written["submit"] or None,
    )


# Nodes of a thousand answer in seconds; what waits longer waits for nodes that others use.
_WAIT_S = 300
_JOB_MINUTES = 5
# Free for the jobs of their reservation, and for no others.
_RESERVED = frozenset({"MAINT", "MAINTENANCE", "RESERVED"})
_OUT = _RESERVED | {"DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "FUTURE"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_GPUS = re.compile(r"(?:^|,)gpu(?::[A-Za-z0-9_.-]{1,64})?:([0-9]{1,3})(?=[,(]|$)")  # gpu:h100:8(S:0-1)
_ADDRESS = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}")


def ask_slurm(
    partition: str, only: Collection[str], slurm: Slurm | None = None, *, block: SlurmBlock | None = None
) -> Answers:
    """Return what the nodes of a partition answer; nodes that Slurm cannot use now are named as silent.

    Args:
        partition: by name.
        only: expressions such as gpu[001-003]; empty: all of the partition.
        slurm: how to ask it.
        block: account, QOS and reservation of the job, and further options; its partition is not looked at.

    Raises BadInput: no such partition, reservation or node, none of them can be used, or no node answered.
    """
    slurm, block = slurm or Slurm(), block or SlurmBlock()
    if not _NAME.fullmatch(partition):
        raise BadInput(f"{partition[:64]!r} is no name of a partition", fix="see sinfo")
    shown = fields(slurm.ask("scontrol", "--oneliner", "show", "partition", partition))
    text = slurm.ask("scontrol", "--oneliner", "show", "node")
    states = parse_show_nodes(text)
    lines = {one["NodeName"]: one for one in map(fields, text.splitlines()) if one.get("NodeName")}
    there = [name for name in states if partition in lines[name].get("Partitions", "").split(",")]
    if only:
        wanted = _names(slurm, only)
        if strangers := sorted(wanted - set(there)):
            raise BadInput(f"{strangers[0]} is no node of partition {partition}", fix="see sinfo --Node")
        there = [name for name in there if name in wanted]
    ours = _reserved(slurm, block.reservation)
    silent = {
        name: f"Slurm has it as {'+'.join(sorted(states[name].states))}"
        for name in there
        if states[name].states & (_OUT - _RESERVED if name in ours else _OUT)
    }
    held = [name for name in silent if not states[name].states & (_OUT - _RESERVED)]
    usable = [name for name in there if name not in silent]
    if not usable:
        raise BadInput(
            f"no node of partition {partition} can be used now",
            fix=f"{held[0]} is reserved: give --reservation" if held else "see sinfo -R; ask by --ansible",
        )
    gres = {name: sum(map(int, _GPUS.findall(lines[name].get("Gres", "")))) for name in usable}
    documents = answers_in(_run_with_gpus(partition, usable, _options(block), min(gres.values())))
    if not documents:
        raise BadInput("the job ran and no node answered", fix="is python3 on the nodes? ask one by srun")
    silent |= {name: "the job ran and it did not answer" for name in usable if name not in documents}
    limit = shown.get("MaxTime", "")
    return answers_of(
        {name: document for name, document in documents.items() if name in usable},
        silent={name: why[:300] for name, why in silent.items()},
        addresses=_addresses(lines, usable),
        gres=gres if any(gres.values()) else {},
        submit=platform.node().partition(".")[0] or None,
        partition=partition,
        max_time="" if limit == "UNLIMITED" else limit,
        account=block.account,
        qos=block.qos,
        reservation=block.reservation,
    )


def _reserved(slurm: Slurm, reservation: str | None) -> Collection[str]:
    """Return the nodes of a reservation. Raises BadInput."""
    if reservation is None:
        return ()
    shown = fields(slurm.ask("scontrol", "--oneliner", "show", "reservation", reservation))
    return slurm.hostnames(shown.get("Nodes", ""))


def _options(block: SlurmBlock) -> list[str]:
    """Return the options of srun that say whose job it is and where it may run."""
    own = (("account", block.account), ("qos", block.qos), ("reservation", block.reservation))
    return [*(f"--{name}={value}" for name, value in own if value is not None), *block.options]


def _names(slurm: Slurm, only: Iterable[str]) -> set[str]:
    """Return the nodes that expressions name, by Slurm itself. Raises BadInput."""
    expression = ",".join(only)
    names = slurm.hostnames(expression)
    if not names:
        raise BadInput(f"--nodes {expression[:64]!r} names no nodes", fix="write gpu[001-003] or n1,n2")
    return set(names)


def _addresses(lines: Mapping[str, Mapping[str, str]], nodes: Iterable[str]) -> dict[str, str]:
    """Return under which address Slurm reaches the nodes; of a name, what this host takes it for."""
    found = {}
    for node in nodes:
        address = lines[node].get("NodeAddr", "")
        if _NAME.fullmatch(address) and not _ADDRESS.fullmatch(address):
            try:
                address = str(socket.getaddrinfo(address, None, socket.AF_INET)[0][4][0])
            except OSError:
                continue
        if _ADDRESS.fullmatch(address):
            found[node] = address
    return found


def _run_with_gpus(partition: str, nodes: list[str], options: list[str], gpus: int) -> str:
    """Run the probe with so many GPUs of each node: where Slurm constrains devices, others are not seen.

    Where they are not to be had, the probe runs without, and what PCI shows beyond is told. Raises BadInput.
    """
    if gpus and not any("--gres" in option or "--gpus" in option for option in options):
        try:
            return _run(partition, nodes, [*options, f"--gres=gpu:{gpus}"])
        except BadInput:
            pass
    return _run(partition, nodes, options)


def _run(partition: str, nodes: list[str], options: list[str]) -> str:
    """Run the probe once on every node and return what they print. Raises BadInput."""
    if shutil.which("srun") is None:
        raise BadInput("srun is not here", fix="run this where jobs are submitted, or use --ansible")
    command = [
        "srun",
        f"--partition={partition}",
        *options,
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(nodes)}",
        f"--time={_JOB_MINUTES}",
        f"--immediate={_WAIT_S}",
        "--job-name=shakedown-discover",
        "--kill-on-bad-exit=0",
        "--input=all",
        "python3",
        "-",
    ]
    try:
        done = subprocess.run(
            command,
            input=program(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_WAIT_S + 60 * _JOB_MINUTES + 60,
            check=False,
            env=plain_environment(os.environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"srun: {str(error)[:200]}", fix="is Slurm up, and are its nodes free?") from None
    if done.returncode != 0 and not done.stdout.strip():
        words = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]
        raise BadInput(
            f"srun: {words[:300]}", fix="ask for nodes that are free with --nodes, or use --ansible"
        )
    return done.stdout
