"""The command ``python -m lab``: a thin layer of words over :mod:`lab.cluster`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import termios
import time
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from lab import cluster, image, remote
from lab.errors import LabError
from lab.paths import default_name, lab_paths
from lab.spaces import cluster as spaces
from lab.spaces import state as space_state
from lab.topology import DEFAULT_NODES, MAX_NODES

_PLAIN = {"no_args_is_help": True, "rich_markup_mode": None, "pretty_exceptions_enable": False}
app = typer.Typer(
    help="The virtual cluster: a head node, compute nodes and a leaf switch as QEMU machines, or with "
    "'up --gpus' as namespaces of this host, with its GPUs.\n\n"
    "Begin with 'up'; 'status' shows what runs, 'ssh n1' goes there, 'down' ends everything. "
    "A lab's name is $SHAKEDOWN_LAB or comes from this checkout's path.",
    add_completion=False,
    **_PLAIN,  # type: ignore[arg-type]
)
fault_app = typer.Typer(
    help="Plant a fault, see what notices it, and clear it.\n\n"
    "loss, rate and delay sit on the leaf's port toward the node: they hit traffic INTO that node on that "
    "rail; the other direction and the other rail stay clean.\n\n"
    "loss: throughput drops, the leaf port counts drops, the receiver's out_of_seq_request and the sender's "
    "rcvd_seq_err rise.\n\n"
    "rate: throughput stays under the limit, the leaf port counts overlimits, no RDMA counter moves.\n\n"
    "delay: latency rises by the delay, nothing is lost.\n\n"
    "ecn-off, wrong-dscp-map, port-mtu, port-down: the port's own settings are wrong; traffic may flow all "
    "the same, and the read-back names the port.\n\n"
    "rewrite-dscp, bleach-ecn: packets leave the port changed; no read-back shows it, only what arrives.\n\n"
    "miswire: two nodes' cables change places; all works, and only LLDP shows it.\n\n"
    "link-down: the node's NIC has no carrier, its RDMA port is down and link_downed counts one.\n\n"
    "clock: the node's time is off; from five minutes on munge refuses it, and Slurm with it.\n\n"
    "stage-readonly: the node's jobs cannot write their outputs.\n\n"
    "duplicate-address: the leaf answers for the node's address, now and then before the node does.\n\n"
    "wrong-address: the node's NIC has an address of another subnet.\n\n"
    "kill: the machine loses power; Slurm sees a node that does not answer.\n\n"
    "With --site fabric the faults of a port take a switch and its port instead of NODE and RAIL: "
    "'loss leaf0 swp3 --percent 2', 'miswire leaf0 swp3 swp4'.\n\n"
    "A lab of namespaces has rate, port-mtu, port-down, link-down, wrong-address and kill, and loss and "
    "delay where the kernel has netem.",
    **_PLAIN,  # type: ignore[arg-type]
)
app.add_typer(fault_app, name="fault")

Name = Annotated[
    str,
    typer.Option("--name", help="Which lab, when this user runs several.", show_default="this checkout's"),
]
Gpus = Annotated[
    str,
    typer.Option(
        "--gpus",
        help="Namespaces of this host instead of QEMU, with so many of its GPUs for each node: a number, or "
        "one for each node (1,0). Needs root. 0: nodes without GPUs; shared: all nodes have the first GPU.",
        show_default="QEMU",
    ),
]
Node = Annotated[str, typer.Argument(help="Compute node: n1, n2, ...; or a switch: leaf0, spine1, ...")]
Rail = Annotated[str, typer.Argument(help="rail0 or rail1; of a switch its port to another: swp3, ...")]
Whose = Annotated[
    str,
    typer.Option(
        "--site",
        help="own: bare machines, for playbooks/site.yml. foreign: a cluster that somebody else has set up: "
        "Slurm with accounts and limits, an ordinary user, NFS with root_squash, modules. "
        "fabric: bare machines under two leaves and two spines, which route by BGP.",
    ),
]
Host = Annotated[str, typer.Argument(help="head, n1, n2, ..., leaf0, ...")]


def _space_lab(name: str) -> spaces.SpaceLab | None:
    """The running lab of that name, if it is one of namespaces."""
    chosen = name or None
    if not space_state.path_of(lab_paths(chosen or default_name())).exists():
        return None
    return spaces.SpaceLab.open(chosen, progress=_Progress())


def _plant(name: str, kind: str, *words: str | float) -> None:
    """Plant a fault in whichever kind of lab it is, and say what was planted."""
    lab = _space_lab(name)
    if lab is not None:
        print(lab.fault(kind, *words))
        return
    plant = getattr(cluster.Lab.open(name or None), f"fault_{kind.replace('-', '_')}", None)
    if plant is None:
        raise LabError(
            f"fault {kind} needs a lab of namespaces", fix="start one with python -m lab up --gpus 0"
        )
    print(plant(*words))


class _Progress:
    """Lines with the elapsed time, on stderr."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, line: str) -> None:
        print(f"[{time.monotonic() - self._started:6.1f} s] {line}", file=sys.stderr, flush=True)


@app.command("image")
def image_command(
    prune: Annotated[bool, typer.Option("--prune", help="Remove images that no lab needs any more.")] = False,
    site: Whose = "own",
) -> None:
    """Build the guests' disk image if the cache lacks it, and print where it is."""
    progress = _Progress()
    print(image.ensure_image(progress, _known(site)).folder)
    for folder in image.prune(cluster.images_in_use()) if prune else []:
        progress(f"removed {folder}")


def _known(site: str) -> str:
    if site not in image.SITES:
        raise LabError(f"there is no site {site!r}", fix=f"use one of {', '.join(image.SITES)}")
    return site


@app.command()
def up(
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", help=f"Compute nodes, 1 to {MAX_NODES}.", show_default=str(DEFAULT_NODES)),
    ] = None,
    site: Whose = "own",
    gpus: Gpus = "",
    name: Name = "",
) -> None:
    """Build what is missing, start every machine and wait until each answers."""
    progress = _Progress()
    lab: cluster.Lab | spaces.SpaceLab
    if gpus:
        if site != "own":
            raise LabError(f"--site {site} needs machines, not namespaces", fix="leave --gpus out")
        lab = spaces.SpaceLab.up(nodes, gpus, name or None, progress=progress)
    elif found := _space_lab(name):
        raise LabError(f"lab {found.name} is up as namespaces", fix="run python -m lab down first")
    else:
        lab = cluster.Lab.up(nodes, name or None, site=site, progress=progress)
    progress(f"lab {lab.name} is up: {', '.join(m.name for m in lab.topology.machines)}")


@app.command("acceptance")
def acceptance_command(
    nodes: Annotated[int, typer.Option("--nodes", help=f"Compute nodes, 2 to {MAX_NODES}.")] = DEFAULT_NODES,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the lab up afterwards.")] = False,
    run_id: Annotated[str, typer.Option("--run-id", help="Name of the run.", show_default="the time")] = "",
    site: Annotated[str, typer.Option("--site", help="own, or fabric: see up --help.")] = "own",
    name: Name = "",
) -> None:
    """Boot, configure, measure, judge and report. Exit status: 0 PASS, 1 FAIL, 2 error, 3 INCONCLUSIVE."""
    from lab import acceptance

    raise typer.Exit(
        acceptance.run(nodes=nodes, name=name or None, site=site, keep=keep, run_id=run_id or None)
    )


@app.command()
def converge(name: Name = "") -> None:
    """Configure the machines by playbooks/site.yml and save them as `converged`; restore brings that back."""
    from lab import acceptance

    acceptance.converge(cluster.Lab.open(name or None, progress=_Progress()))


@app.command()
def down(name: Name = "") -> None:
    """End every process of the lab and remove its disks; the image stays cached."""
    progress = _Progress()
    ended = spaces.stop(name or None, progress) or cluster.stop(name or None, progress)
    progress("the lab is down" if ended else "no lab was up")


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False, name: Name = ""
) -> None:
    """Show the machines, their ports, memory and faults."""
    found = spaces.status(name or None) or cluster.status(name or None)
    if as_json:
        print(json.dumps(found.json(), indent=2))
        return
    if not found.machines:
        print(f"lab {found.name} is down; python -m lab up starts it")
        return
    is_up = "up" if found.up else "not up"
    print(f"lab {found.name}: {is_up}, {found.accelerator}, disks in {found.disk_folder}")
    print(f"snapshots: {', '.join(found.snapshots) or 'none'}")
    line = "{:8} {:8} {:8} {:12} {:>8} {:>10}  {}"
    print(line.format("machine", "role", "state", "management", "ssh port", "memory MiB", "fault").rstrip())
    for m in found.machines:
        state = "running" if m.running else "off"
        shown = line.format(m.name, m.role, state, m.mgmt_ip, m.ssh_port, m.memory_mib, m.fault)
        print(shown.rstrip())


@app.command(
    "exec", hidden=True, context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True}
)
@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def ssh(
    host: Host,
    command: Annotated[list[str] | None, typer.Argument(help="A command; none for a shell.")] = None,
    name: Name = "",
) -> None:
    """Run a command on a machine as root, or open a shell there.

    Several words reach the machine as they are; a single one is a line for its shell.
    """
    words = [word for i, word in enumerate(command or []) if (i, word) != (0, "--")]
    if len(words) == 1:
        words = ["sh", "-c", words[0]]
    argv = (_space_lab(name) or cluster.Lab.open(name or None)).ssh_argv(host, words)
    sys.stdout.flush()
    os.execv(argv[0], argv)  # noqa: S606  # ssh takes over the terminal


@app.command()
def console(
    host: Host,
    lines: Annotated[int, typer.Option("--lines", help="How many of the last lines.")] = 40,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Attach to it; Ctrl-] leaves.")] = False,
    name: Name = "",
) -> None:
    """Show the last lines of a machine's serial console, or attach to it."""
    paths = lab_paths(name or default_name())
    log = paths.console_log(Path(host).name)
    if not log.exists():
        raise LabError(f"no console of {host!r} in lab {paths.name}", fix="see python -m lab status")
    print(remote.tail(log, lines))
    if follow:
        _attach(paths.socket(f"{host}.console"))


@app.command()
def save(tag: Annotated[str, typer.Argument(help="A name for this moment.")], name: Name = "") -> None:
    """Save memory and disk of every machine at this moment."""
    progress = _Progress()
    cluster.Lab.open(name or None, progress=progress).save(tag)
    progress(f"saved {tag}")


@app.command()
def restore(tag: Annotated[str, typer.Argument(help="A name given to save.")], name: Name = "") -> None:
    """Put every machine back to a saved moment; the clocks are set to now."""
    progress = _Progress()
    cluster.Lab.open(name or None, progress=progress).restore(tag)
    progress(f"restored {tag}")


@fault_app.command("loss")
def fault_loss(
    node: Node,
    rail: Rail,
    percent: Annotated[float, typer.Option("--percent", help="Share of packets dropped.")],
    name: Name = "",
) -> None:
    """Drop packets at random on the leaf port toward NODE."""
    _plant(name, "loss", node, rail, percent)


@fault_app.command("rate")
def fault_rate(
    node: Node,
    rail: Rail,
    mbit: Annotated[float, typer.Option("--mbit", help="Limit in 10^6 bit/s.")],
    name: Name = "",
) -> None:
    """Slow the leaf port toward NODE."""
    _plant(name, "rate", node, rail, mbit)


@fault_app.command("delay")
def fault_delay(
    node: Node,
    rail: Rail,
    ms: Annotated[float, typer.Option("--ms", help="Delay of each packet in ms.")],
    name: Name = "",
) -> None:
    """Delay packets on the leaf port toward NODE."""
    _plant(name, "delay", node, rail, ms)


@fault_app.command("reorder")
def fault_reorder(
    node: Node,
    rail: Rail,
    percent: Annotated[float, typer.Option("--percent", help="Share of packets that overtake.")],
    name: Name = "",
) -> None:
    """Let packets overtake each other on the leaf port toward NODE."""
    _plant(name, "reorder", node, rail, percent)


@fault_app.command("flap")
def fault_flap(
    node: Node,
    rail: Rail,
    seconds: Annotated[float, typer.Option("--seconds", help="How long without carrier.")] = 2.0,
    name: Name = "",
) -> None:
    """Unplug NODE's cable on RAIL and plug it in again."""
    _plant(name, "flap", node, rail, seconds)


@fault_app.command("small-rx-ring")
def fault_small_rx_ring(
    node: Node,
    rail: Rail,
    entries: Annotated[int, typer.Option("--entries", help="Receive buffers: 8, 16, ... 256.")],
    name: Name = "",
) -> None:
    """Give NODE's NIC on RAIL few receive buffers."""
    _plant(name, "small-rx-ring", node, rail, entries)


@fault_app.command("pause-frames")
def fault_pause_frames(
    node: Node,
    rail: Rail,
    count: Annotated[int, typer.Option("--count", help="How many frames.")],
    name: Name = "",
) -> None:
    """Send PFC pause frames to NODE on RAIL."""
    _plant(name, "pause-frames", node, rail, count)


@fault_app.command("ecn-off")
def fault_ecn_off(node: Node, rail: Rail, name: Name = "") -> None:
    """Stop ECN marking on the leaf port toward NODE."""
    _plant(name, "ecn-off", node, rail)


@fault_app.command("wrong-dscp-map")
def fault_wrong_dscp_map(node: Node, rail: Rail, name: Name = "") -> None:
    """Classify the RoCE traffic that comes from NODE as the rest."""
    _plant(name, "wrong-dscp-map", node, rail)


@fault_app.command("rewrite-dscp")
def fault_rewrite_dscp(
    node: Node,
    rail: Rail,
    dscp: Annotated[int, typer.Option("--dscp", help="DSCP that RoCE leaves the port with.")] = 0,
    name: Name = "",
) -> None:
    """Rewrite the DSCP of the RoCE traffic that leaves for NODE."""
    _plant(name, "rewrite-dscp", node, rail, dscp)


@fault_app.command("bleach-ecn")
def fault_bleach_ecn(node: Node, rail: Rail, name: Name = "") -> None:
    """Clear the ECN bits of the RoCE traffic that leaves for NODE."""
    _plant(name, "bleach-ecn", node, rail)


@fault_app.command("port-mtu")
def fault_port_mtu(
    node: Node,
    rail: Rail,
    mtu_bytes: Annotated[int, typer.Option("--bytes", help="MTU of the port in bytes.")],
    name: Name = "",
) -> None:
    """Give the leaf port toward NODE another MTU."""
    _plant(name, "port-mtu", node, rail, mtu_bytes)


@fault_app.command("port-down")
def fault_port_down(node: Node, rail: Rail, name: Name = "") -> None:
    """Shut the leaf port toward NODE."""
    _plant(name, "port-down", node, rail)


@fault_app.command("miswire")
def fault_miswire(
    node: Node,
    other: Annotated[str, typer.Argument(help="The other node; of a switch its first port.")],
    rail: Rail,
    name: Name = "",
) -> None:
    """Swap the cables of two nodes on RAIL at the leaf."""
    _plant(name, "miswire", node, other, rail)


@fault_app.command("link-down")
def fault_link_down(node: Node, rail: Rail, name: Name = "") -> None:
    """Unplug NODE's cable on RAIL."""
    _plant(name, "link-down", node, rail)


@fault_app.command("wrong-address")
def fault_wrong_address(node: Node, rail: Rail, name: Name = "") -> None:
    """Give NODE's NIC on RAIL an address of another subnet."""
    _plant(name, "wrong-address", node, rail)


@fault_app.command("kill")
def fault_kill(host: Host, name: Name = "") -> None:
    """Take a machine's power away at once."""
    _plant(name, "kill", host)


@fault_app.command("clock", context_settings={"ignore_unknown_options": True})
def fault_clock(
    node: Node,
    seconds: Annotated[float, typer.Argument(help="How far ahead; below zero is behind.")],
    name: Name = "",
) -> None:
    """Set NODE's clock ahead, or back."""
    _plant(name, "clock", node, seconds)


@fault_app.command("stage-readonly")
def fault_stage_readonly(node: Node, name: Name = "") -> None:
    """Mount the shared folder read-only on NODE."""
    _plant(name, "stage-readonly", node)


@fault_app.command("duplicate-address")
def fault_duplicate_address(node: Node, rail: Rail, name: Name = "") -> None:
    """Give NODE's address on RAIL to the leaf as well."""
    _plant(name, "duplicate-address", node, rail)


@fault_app.command("clear")
def fault_clear(name: Name = "") -> None:
    """Undo every fault; machines without power boot again."""
    lab = _space_lab(name) or cluster.Lab.open(name or None, progress=_Progress())
    done = lab.fault_clear()
    print("\n".join(done or ["no fault was planted"]))


def _attach(path: Path) -> None:
    """Join terminal and console until Ctrl-]."""
    with socket.socket(socket.AF_UNIX) as link, _raw_terminal():
        try:
            link.connect(str(path))
        except OSError as error:
            raise LabError(f"no console at {path}: {error}", fix="see python -m lab status") from error
        while True:
            for ready in select.select([sys.stdin, link], [], [])[0]:
                data = os.read(sys.stdin.fileno(), 1024) if ready is sys.stdin else link.recv(4096)
                if not data or (ready is sys.stdin and b"\x1d" in data):
                    return
                if ready is sys.stdin:
                    link.sendall(data)
                else:
                    os.write(sys.stdout.fileno(), data)


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _terminated(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command: one line on stderr and exit status 2 for anything the user can mend."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        app()
    except LabError as error:
        if error.detail:
            print(error.detail, file=sys.stderr)
        print(f"lab: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
