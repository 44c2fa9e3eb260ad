"""Print what this host is made of: board, NICs, GPUs, cables and software, as one JSON document.

Serial numbers and addresses that identify a machine to its owner are kept; nothing secret is read. A tool
that is missing leaves its part out.
"""

import base64
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

Component = dict[str, Any]
_TOOL_SECONDS = 30
# What a run's outcome depends on: (name, command, where the version is in its output).
_SOFTWARE = (
    ("perftest", ("ib_write_bw", "--version"), r"([0-9]+\.[0-9]+[-.0-9a-z]*)"),
    ("openmpi", ("mpirun", "--version"), r"\) ([0-9][0-9.a-z]+)"),
    ("ucx", ("ucx_info", "-v"), r"[Vv]ersion[ :=]+([0-9][0-9.a-z]+)"),
    ("slurm", ("slurmd", "-V"), r"slurm(?:-wlm)? ([0-9][0-9.a-z-]+)"),
    ("iproute2", ("ip", "-V"), r"iproute2-([0-9a-z.-]+)"),
    ("ethtool", ("ethtool", "--version"), r"version ([0-9.]+)"),
)


def run(*argv: str) -> str:
    """What a program prints; empty if it is missing or fails."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TOOL_SECONDS,
            check=False,
            env={"PATH": path, "LC_ALL": "C", "HOME": os.environ.get("HOME", "/")},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    # Some write their version to standard error, or end with status 1 after printing it.
    return done.stdout if done.returncode == 0 else done.stdout + done.stderr if "ersion" in argv[-1] else ""


def text(path: str) -> str:
    """A file's text; empty if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def field(pattern: str, output: str) -> str:
    """The first group of a pattern, or nothing."""
    match = re.search(pattern, output, re.M)
    return match.group(1).strip() if match else ""


def component(kind: str, name: str, attributes: dict[str, str]) -> Component:
    """A component without empty attributes, its name fit for a path."""
    plain = re.sub(r"[^A-Za-z0-9_.:+-]", "_", name).lstrip("_.:+-") or "unnamed"
    return {"kind": kind, "name": plain, "attributes": {k: v[:300] for k, v in attributes.items() if v}}


def machine_id() -> str:
    """What stands for machine-id(5), which itself is not to leave its machine: enough to tell two apart."""
    found = text("/etc/machine-id")
    return hashlib.sha256(b"shakedown " + found.encode()).hexdigest()[:32] if found else ""


def ssh_host_keys() -> str:
    """Fingerprints of the SSH host keys, as ssh-keygen -l prints them, blanks between."""
    found = []
    for path in sorted(Path("/etc/ssh").glob("ssh_host_*_key.pub")):
        words = text(str(path)).split()
        try:
            key = base64.b64decode(words[1], validate=True)
        except (IndexError, ValueError):
            continue
        found.append("SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("="))
    return " ".join(found[:5])  # an attribute has 300 characters


def processors() -> dict[str, str]:
    """Sockets, cores of each and threads of a core, of the CPUs that are online."""
    places = {
        (text(f"{folder}/physical_package_id"), text(f"{folder}/thread_siblings_list"))
        for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology")
    }
    sockets = {socket for socket, _ in places}
    if not places or not all(map(all, places)):
        return {}
    cores = sorted({str(sum(one == socket for one, _ in places)) for socket in sockets})
    # 0,32 or 0-3: a range counts from its first to its last.
    spans = [[span.split("-") for span in siblings.split(",")] for _, siblings in places]
    threads = {str(sum(int(span[-1]) - int(span[0]) + 1 for span in one)) for one in spans}
    return {
        "sockets": str(len(sockets)),
        "cores_per_socket": ", ".join(cores),
        "threads_per_core": ", ".join(sorted(threads)),
    }


def modules() -> dict[str, str]:
    """Modules of memory, which root alone may ask for: how many, how large, how fast they run."""
    found = [
        (size, field(r"^\s*Configured (?:Memory|Clock) Speed: ([0-9]+) M", block))
        for block in run("dmidecode", "-t", "memory").split("\n\n")
        if "Memory Device\n" in block and (size := field(r"^\s*Size: ([0-9]+ [MGT]B)$", block))
    ]
    mib = {"MB": 1, "GB": 1024, "TB": 1024 * 1024}
    sizes = {str(int(size.split()[0]) * mib[size.split()[1]]) for size, _ in found}
    return {
        "memory_modules": str(len(found) or ""),
        "memory_module_mib": ", ".join(sorted(sizes)),
        "memory_mts": ", ".join(sorted({speed for _, speed in found})),
    }


def node(kind: str) -> Component:
    """Board, firmware, CPU, memory and kernel."""
    dmi, cpu = "/sys/class/dmi/id", text("/proc/cpuinfo")
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text("/etc/os-release"), re.M))
    attributes = {
        "vendor": text(f"{dmi}/sys_vendor"),
        "product": text(f"{dmi}/product_name"),
        "serial": text(f"{dmi}/product_serial"),
        "board_serial": text(f"{dmi}/board_serial"),
        "machine_id": machine_id(),
        "boot_id": text("/proc/sys/kernel/random/boot_id"),
        "ssh_host_keys": ssh_host_keys(),
        "bios_version": text(f"{dmi}/bios_version"),
        "bios_date": text(f"{dmi}/bios_date"),
        "bmc_firmware": field(r"^Firmware Revision\s*: (\S+)", run("ipmitool", "mc", "info")),
        "cpu": field(r"^model name\s*: (.+)$", cpu),
        "cpu_microcode": field(r"^microcode\s*: (.+)$", cpu),
        "cpus": str(os.cpu_count() or ""),
        **processors(),
        **modules(),
        "memory_kib": field(r"^MemTotal:\s+([0-9]+)", text("/proc/meminfo")),
        "os": release.get("PRETTY_NAME", ""),
        "kernel": platform.release(),
        # What decides over GPUDirect and pinning; the rest of the command line may name secrets.
        "kernel_options": " ".join(
            w
            for w in text("/proc/cmdline").split()
            if re.match(r"(iommu|intel_iommu|amd_iommu|isolcpus|nohz_full|pci|pcie_\w+|\w+\.max_cstate)=", w)
        ),
        "iommu": iommu(),
        "virtual": "yes" if " hypervisor" in cpu else "no",
    }
    return component(kind, platform.node(), attributes)


def iommu() -> str:
    """How the IOMMU treats devices, as anybody may read it: off, or its groups' kinds (DMA-FQ, identity)."""
    groups = sorted(Path("/sys/kernel/iommu_groups").glob("[0-9]*"))
    return " ".join(sorted({text(str(group / "type")) or "on" for group in groups})) or "off"


def pcie(folder: Path) -> str:
    """A PCI function's link, `32.0 GT/s x16`, and what it could be where that is more; empty: it has none."""
    now, most = (
        [text(str(folder / f"{which}_link_{what}")).replace(" PCIe", "") for what in ("speed", "width")]
        for which in ("current", "max")
    )
    if not now[1].isdigit() or now[1] == "0":
        return ""
    return " x".join(now) + ("" if now == most else f" of {' x'.join(most)}")


def devlink() -> dict[str, dict[str, Any]]:
    """`devlink dev info` by PCI address."""
    try:
        found = json.loads(run("devlink", "-j", "dev", "info") or "{}").get("info", {})
    except ValueError:
        return {}
    return {name.partition("/")[2]: info for name, info in found.items() if name.startswith("pci/")}


def kind_of(device: Path, address: str) -> dict[str, str]:
    """What a PCI device is, by its own numbers and as lspci names them."""
    numbers = [text(str(device / name)).replace("0x", "") for name in ("vendor", "device")]
    return {
        "model": field(r"^Device:\s+(.*)$", run("lspci", "-vmm", "-s", address)) if address else "",
        "pci_id": ":".join(numbers) if all(numbers) else "",
        "virtual_function": "yes" if (device / "physfn").exists() else "",
    }


def nics() -> list[Component]:
    """NICs with an address on PCI, and their cables."""
    found: list[Component] = []
    info = devlink()
    folder = Path("/sys/class/net")
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (entry / "device").exists():
            continue
        netdev = entry.name
        driver = run("ethtool", "-i", netdev)
        address = field(r"^bus-info: (\S+)", driver)
        versions = info.get(address, {}).get("versions", {})
        fixed, running = versions.get("fixed", {}), versions.get("running", {})
        attributes = {
            "netdev": netdev,
            "rdma_device": " ".join(sorted(p.name for p in (entry / "device").glob("infiniband/*"))),
            "node_guid": " ".join(
                text(str(p / "node_guid")) for p in sorted((entry / "device").glob("infiniband/*"))
            ),
            "pci": address,
            **kind_of(entry / "device", address),
            "driver": field(r"^driver: (\S+)", driver),
            "driver_version": field(r"^version: (.*)$", driver),
            "firmware": str(running.get("fw.version") or field(r"^firmware-version: (\S.*)$", driver)),
            "psid": str(fixed.get("fw.psid", "")),
            "board": str(fixed.get("board.id", "")),
            "serial": str(info.get(address, {}).get("serial_number", "")),
            "mac": text(str(entry / "address")),
            "speed_mbps": text(str(entry / "speed")),
            "mtu_bytes": text(str(entry / "mtu")),
            "pcie": pcie(entry / "device"),
        }
        found.append(component("nic", netdev, attributes))
        module = run("ethtool", "-m", netdev)
        if module:
            names = (
                "Identifier",
                "Vendor name",
                "Vendor PN",
                "Vendor rev",
                "Vendor SN",
                "Cable assembly length",
            )
            values = {n.lower().replace(" ", "_"): field(rf"^\s*{n}\s*: (.*)$", module) for n in names}
            found.append(component("cable", netdev, values))
    return found


# Attributes of GPUs, and what nvidia-smi calls them.
_GPU = {
    "index": "index",
    "pci": "pci.bus_id",
    "name": "name",
    "uuid": "uuid",
    "serial": "serial",
    "vbios_version": "vbios_version",
    "driver_version": "driver_version",
    "memory_mib": "memory.total",
    "power_limit_w": "power.limit",
    "pcie_generation": "pcie.link.gen.max",  # that GPU and slot can do: idle, a link is slower
    "pcie_width": "pcie.link.width.current",
    "persistence_mode": "persistence_mode",
    "mig_mode_current": "mig.mode.current",
}


def gpus() -> list[Component]:
    """GPUs as their driver names them."""
    query = ",".join(_GPU.values())
    rows = run("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits").splitlines()
    up: dict[str, int] = {}
    number = ""
    for line in run("nvidia-smi", "nvlink", "--status").splitlines():
        if begins := re.match(r"GPU ([0-9]+):", line):
            number = begins[1]
            up[number] = 0
        elif number and re.match(r"\s*Link [0-9]+: [0-9.]+ GB/s", line):
            up[number] += 1
    found = []
    for row in rows:
        values = [value.strip() for value in row.split(",")]
        if len(values) == len(_GPU):
            attributes = dict(zip(_GPU, values))  # noqa: B905  (3.9 has no strict)
            # What it does not tell of itself, such as a limit of power on some cards.
            told = {key: value for key, value in attributes.items() if value not in ("[N/A]", "N/A")}
            found.append(component("gpu", f"gpu{values[0]}", {**told, "nvlinks": str(up.get(values[0], ""))}))
    return found


def drives() -> list[Component]:
    """NVMe drives on PCI."""
    found = []
    for entry in sorted(Path("/sys/class/nvme").glob("nvme[0-9]*")):
        if text(f"{entry}/transport") not in ("", "pcie"):
            continue
        # nvme0n1, or nvme0c0n1 where the kernel has several ways to one drive.
        blocks = [text(str(size)) for size in entry.glob("nvme*n[0-9]*/size")]
        size = sum(int(sectors) * 512 for sectors in blocks if sectors.isdigit())
        attributes = {
            "model": text(f"{entry}/model"),
            "firmware": text(f"{entry}/firmware_rev"),
            "serial": text(f"{entry}/serial"),
            "size_bytes": str(size or ""),
        }
        found.append(component("drive", entry.name, attributes))
    return found


def software() -> list[Component]:
    """Versions of the tools that measure."""
    found = []
    for name, argv, pattern in _SOFTWARE:
        version = field(pattern, run(*argv))
        if version:
            found.append(component("software", name, {"version": version}))
    return found


def components(kind: str) -> list[Component]:
    """Everything that this host is made of."""
    return [node(kind), *nics(), *gpus(), *drives(), *software()]


def main() -> int:
    """Print the document; an argument says what kind of host this is (node or switch)."""
    kind = sys.argv[1] if len(sys.argv) > 1 else "node"
    print(json.dumps({"schema": 1, "components": components(kind)}))
    return 0


if __name__ == "__main__":
    if globals().get("__package__"):  # not read from standard input, where nothing else of us is
        from shakedown.records.program import ended

        ended(main)
    sys.exit(main())
