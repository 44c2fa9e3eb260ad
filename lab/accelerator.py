"""Whether guests run with hardware virtualisation, found out by running one."""

from __future__ import annotations

import json
import os
import platform
import subprocess

from lab import host
from lab.errors import LabError
from lab.image import PROBE_MARKER, Image
from lab.paths import cache_root
from lab.qemu import KVM, MACHINE_ARGV, TCG, Accelerator, accelerator

# A guest needs about 0.3 s with hardware virtualisation and 2.5 s without; one that hangs never ends.
_PATIENCE_S = 10.0


def choose(image: Image) -> Accelerator:
    """KVM when a guest boots with it, emulation otherwise.

    $SHAKEDOWN_ACCEL (kvm or tcg) decides without a probe.  A /dev/kvm that can be opened proves nothing: QEMU
    may abort or hang on it.  The answer is kept for this host kernel and QEMU.
    """
    wanted = os.environ.get("SHAKEDOWN_ACCEL", "")
    if wanted:
        if wanted not in (KVM.name, TCG.name):
            raise LabError(f"SHAKEDOWN_ACCEL is {wanted!r}", fix="set it to kvm or tcg, or unset it")
        return accelerator(wanted)
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return TCG
    store = cache_root() / "accelerator.json"
    version = host.run(["qemu-system-x86_64", "--version"], "qemu --version").stdout.partition("\n")[0]
    key = f"{platform.release()} | {version}"
    try:
        known = json.loads(store.read_text())
        if known["host"] == key:
            return accelerator(known["accelerator"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # never probed here, or not readable: probe
    found = KVM if boots(image, KVM) else TCG
    aside = store.with_suffix(f".{os.getpid()}")
    aside.write_text(json.dumps({"host": key, "accelerator": found.name}) + "\n")
    aside.replace(store)
    return found


def boots(image: Image, candidate: Accelerator) -> bool:
    """Whether the lab's kernel prints the marker and powers off with the lab's own machine and CPU."""
    argv = [
        host.program("qemu-system-x86_64"),
        *MACHINE_ARGV,
        *candidate.argv,
        *("-m", "256M", "-no-reboot", "-serial", "stdio"),
        *("-kernel", str(image.kernel), "-initrd", str(image.probe_initrd)),
        *("-append", "console=ttyS0 quiet panic=-1"),
    ]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and PROBE_MARKER.encode() in done.stdout
