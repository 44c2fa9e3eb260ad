"""Small sysfs trees of hosts whose GPUs lie behind PCIe switches, as the kernel would show them.

The four CDI configurations: path N has N switches between root port and GPU, and all GPUs share the uplink of
the first. They are made by us from the published description; no such host was at hand.
"""

from dataclasses import dataclass
from pathlib import Path

ROOT_PORT, UPSTREAM, DOWNSTREAM, ENDPOINT = 4, 5, 6, 0
GT_S = {1: "2.5", 3: "8.0", 4: "16.0", 5: "32.0"}


@dataclass
class Function:
    """One PCI function. Speed and width are those of the link above it."""

    bdf: str
    port_type: int
    generation: int = 4
    width: int = 16
    most_generation: int = 4
    most_width: int = 16
    numa: int = 0
    gpu: bool = False


class Tree:
    """A host's functions by their place below the root, written as sysfs shows them."""

    def __init__(self, numa_nodes: int = 2) -> None:
        self.numa_nodes = numa_nodes
        self.chains: list[list[Function]] = []

    def write(self, root: Path, *, readable: bool = True) -> Path:
        """Write the tree; `readable` is False for a reader that is not root (64 bytes of configuration)."""
        listing = root / "sys/bus/pci/devices"
        listing.mkdir(parents=True)
        for node in range(self.numa_nodes):
            folder = root / f"sys/devices/system/node/node{node}"
            folder.mkdir(parents=True)
            (folder / "cpulist").write_text(f"{16 * node}-{16 * node + 15}\n")
            (folder / "distance").write_text("10 21\n" if node == 0 else "21 10\n")
        for chain in self.chains:
            place = root / f"sys/devices/pci{chain[0].bdf[:7]}"
            for function in chain:
                place = place / function.bdf
                if not place.exists():
                    self._write(function, place, readable)
                    (listing / function.bdf).symlink_to(place)
        return root

    def _write(self, function: Function, place: Path, readable: bool) -> None:
        place.mkdir(parents=True)
        texts = {
            "class": "0x030200" if function.gpu else "0x060400",
            "vendor": "0x10de" if function.gpu else "0x1000",
            "device": "0x26b9" if function.gpu else "0xc030",
            "numa_node": str(function.numa),
            "current_link_speed": f"{GT_S[function.generation]} GT/s PCIe",
            "max_link_speed": f"{GT_S[function.most_generation]} GT/s PCIe",
            "current_link_width": str(function.width),
            "max_link_width": str(function.most_width),
            "resource": "0x0000000000000000 0x0000000000000000 0x0000000000000000",
        }
        for name, text in texts.items():
            (place / name).write_text(text + "\n")
        config = bytearray(256 if readable else 64)
        if readable:
            config[0x34] = 0x40
            config[0x40:0x43] = bytes([0x10, 0x00, function.port_type << 4 | 2])
        (place / "config").write_bytes(bytes(config))


def cdi(path: int, *, gpus: int = 4, generation: int = 4) -> Tree:
    """Return the tree of a CDI host whose GPUs lie behind `path` switches, all below one root port.

    Path 0 is the host without switches: every GPU has a root port of its own.
    """
    tree = Tree()
    same = {"generation": generation, "most_generation": generation}
    for gpu in range(gpus):
        if path == 0:
            root = Function(f"0000:{0x15 + 0x10 * gpu:02x}:01.0", ROOT_PORT, numa=gpu * 2 // gpus, **same)
            end = Function(
                f"0000:{0x16 + 0x10 * gpu:02x}:00.0", ENDPOINT, gpu=True, numa=gpu * 2 // gpus, **same
            )
            tree.chains.append([root, end])
            continue
        chain = [Function("0000:15:01.0", ROOT_PORT, **same)]
        for level in range(path):
            last = level == path - 1
            bus = 0x16 + 2 * level
            chain.append(Function(f"0000:{bus:02x}:00.0", UPSTREAM, **same))
            # The last switch fans out, one downstream port for each GPU.
            chain.append(Function(f"0000:{bus + 1:02x}:{gpu if last else 0:02x}.0", DOWNSTREAM, **same))
        chain.append(Function(f"0000:{0x40 + gpu:02x}:00.0", ENDPOINT, gpu=True, **same))
        tree.chains.append(chain)
    return tree
