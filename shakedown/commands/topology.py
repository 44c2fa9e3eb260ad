"""`shakedown topology HOST`: how near GPUs and NICs are to each other and the CPUs: table and picture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.arguments import command
from shakedown.records.program import PACKAGE, plain_environment
from shakedown.records.reading import BadInput, ExitStatus

if TYPE_CHECKING:
    from shakedown.topology.host_map import Topology

_PROBE = PACKAGE / "onnode" / "topology_probe.py"


@command("shakedown topology localhost --svg localhost.svg", "shakedown topology inventories/lab --switches")
def topology(
    host: Annotated[str, typer.Argument(help="localhost, a host for ssh, or a file that the probe printed.")],
    svg: Annotated[Path | None, typer.Option(help="Write the picture to this file.")] = None,
    gres: Annotated[bool, typer.Option("--gres", help="Print gres.conf lines instead of the table.")] = False,
    ranks: Annotated[bool, typer.Option("--ranks", help="Print an Open MPI rank file instead.")] = False,
    switches: Annotated[
        bool, typer.Option("--switches", help="HOST is an inventory: print topology.conf of its rail groups.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Show which GPU should use which NIC, on which NUMA node and CPUs.

    Nothing is changed on the host: a small Python program is sent over ssh and reads sysfs. Exit status 1:
    something is wrong, such as a link that trained down or a GPU without a near NIC.
    """
    from shakedown.records.writing import write_aside
    from shakedown.topology import host_map
    from shakedown.topology.host_map import pairs, parse_topology, problems
    from shakedown.topology.picture import picture

    file = Path(host)
    if switches:
        _switches(file)
        return ExitStatus.PASS
    found = parse_topology(file.read_bytes() if file.is_file() else _probe(host), file=host)
    wrong = problems(found)
    if svg:
        write_aside(svg, picture(found).encode())
    if gres:
        print(host_map.gres_conf(found), end="")
    elif ranks:
        print(host_map.rank_file(found), end="")
    elif as_json:
        best = [
            {"gpu": p.gpu.bdf, "nic": p.nic.label, "distance": p.distance, "numa_node": found.node_of(p.gpu)}
            for p in pairs(found)
        ]
        try:
            mpi = host_map.mpi_options(found)
        except BadInput:
            mpi = []  # uneven: --ranks says where ranks belong
        document = {"schema": 1, "host": found.host, "pairs": best, "mpirun": mpi, "problems": wrong}
        print(json.dumps(document))
    else:
        _table(found)
        for sentence in wrong:
            print(f"{found.host}: {sentence}", file=sys.stderr)
    return ExitStatus.FAIL if wrong else ExitStatus.PASS


def _switches(inventory: Path) -> None:
    """Print Slurm's topology.conf for the rail groups of an inventory. Raises BadInput."""
    from shakedown.benchmarks.planning import read_site
    from shakedown.topology.host_map import slurm_topology

    site = read_site(inventory)
    leaves = {node: tuple(nic.leaf or "none" for nic in nics) for node, nics in site.nics.items()}
    print(slurm_topology(leaves), end="")


def _probe(host: str) -> bytes:
    """Run the probe on a host. Raises BadInput."""
    if host.startswith("-"):
        raise BadInput(f"{host!r} is no host", fix="give a host name or a file")
    # The probe travels on standard input, so nothing is left on the host.
    argv = (
        [sys.executable, "-"] if host == "localhost" else ["ssh", "-o", "BatchMode=yes", host, "python3", "-"]
    )
    try:
        done = subprocess.run(
            argv,
            input=_PROBE.read_bytes(),
            capture_output=True,
            timeout=120,
            check=False,
            env=plain_environment(os.environ),
        )
    except subprocess.TimeoutExpired:
        raise BadInput(f"{host} did not answer within 120 s", fix="check that ssh reaches it") from None
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise BadInput(f"{host}: {words[-1]}", fix=f"check that `ssh {host} python3` works, or name a file")
    return done.stdout


def _table(found: Topology) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from shakedown.topology.host_map import distance, pairs

    nics, best = found.fabric_nics(), {p.gpu.bdf: p.nic.bdf for p in pairs(found)}
    title = f"GPUs and NICs of {found.host} (* is the NIC to use)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in ("device", "PCI address", "NUMA", "CPUs", "link", *(nic.label for nic in nics)):
        table.add_column(Text(column), no_wrap=True)
    cpus = {node.node: node.cpus for node in found.numa}
    for number, device in enumerate((*found.gpu_devices(), *nics)):
        node = found.node_of(device)
        link = f"x{device.width} {device.speed_gt_s:g} GT/s" if device.width and device.speed_gt_s else "-"
        near = [
            ""
            if nic.bdf == device.bdf
            else distance(found, device, nic) + "*" * (best.get(device.bdf) == nic.bdf)
            for nic in nics
        ]
        name = f"GPU {number}" if device.is_gpu else device.label
        where = "-1" if node is None else str(node)
        row = (name, device.bdf, where, "-" if node is None else cpus.get(node, "-"), link, *near)
        table.add_row(*(Text(cell) for cell in row))
    # A pipe has no width; cells cut to 80 columns would lose addresses.
    Console(width=None if sys.stdout.isatty() else 400).print(table)
