#!/usr/bin/env python3
"""A stand-in for perftest: the same options, handshake over TCP and table, and faults on request.

$FAKE_FAULTS names a JSON file: a list of {"node", "side", "device", "test", "fault"}, each optional but the
fault, which is one of hang, crash, deaf (a server that never listens), slow, noclock (no number in the table,
as often as "times" says), low (a low rate between two nodes, as often as "times" says).
"""

import json
import os
import re
import signal
import socket
import sys
import time

OPERATIONS = {"write": "RDMA_Write", "read": "RDMA_Read", "send": "Send"}
RULER = "-" * 87


def gpu_lines(interface, index, buses, dmabuf):
    """Return what perftest prints of a GPU first (24.01 cuda_memory.c, 25.04 rocm_memory.c)."""
    address = "0x7f3a40000000"
    path = (
        f"using DMA-BUF for GPU buffer address at {address} aligned at {address} with aligned size 2097152\n"
    )
    if interface == "rocm":
        bus = int(buses[index].split(":")[1], 16)
        name = "AMD Instinct MI300X"
        return (
            f"Using ROCm Device with ID: {index}, Name: {name}, PCI Bus ID: 0x{bus:x}, GCN Arch: gfx942\n"
            + (path if dmabuf else "")
            + f"allocated 2097152 bytes of GPU buffer at {address}\n"
        )
    listed = "".join(
        f"CUDA device {i}: PCIe address is {bus.split(':')[1].upper()}:{bus.split(':')[2][:2].upper()}\n"
        for i, bus in enumerate(buses)
    )
    return (
        "initializing CUDA\nListing all CUDA devices in system:\n"
        + listed
        + f"\nPicking device No. {index}\n"
        + f"[pid = 4711, dev = {index}] device name = [NVIDIA H100 80GB HBM3]\n"
        + "creating CUDA Ctx\nmaking it the current CUDA Ctx\n"
        + "cuMemAlloc() of a 2097152 bytes GPU buffer\n"
        + f"allocated GPU buffer address at 00007f3a40000000 pointer={address}\n"
        + (path if dmabuf else "")
    )


def report(
    test, size, gbps, ends, device="rxe0", mtu="4096", both=False, seconds=None, qps=1, cm=False, count=None
):
    """Return what the client prints; `ends` are the IPv4 addresses of client and server.

    `size` None: all sizes (-a), each at half of the last one's rate or less, as small messages are.
    """
    title = OPERATIONS[test.split("_")[1]] + (" Bidirectional" if both else "")
    gids = [
        "00:00:00:00:00:00:00:00:00:00:255:255:" + re.sub(r"\d+", two_digits, ip.replace(".", ":"))
        for ip in ends
    ]
    count = count or (1000 if gbps else 300)
    if seconds:  # that it counted over, in duration mode: of both ways, the client's own
        count = round(gbps * 1e9 / 8 / size * seconds / (2 if both and "send" not in test else 1))
    psn = os.urandom(3).hex()  # by which two outputs of the same ends differ
    locals_, remotes = (
        "".join(
            f" {side} address: LID 0000 QPN 0x{n + 17:04x} PSN 0x{psn} RKey 0x1 VAddr 0x1\n GID: {gid}\n"
            for n in range(qps)
        )
        for side, gid in zip(("local", "remote"), gids, strict=True)
    )
    sizes = [size] if size else [1 << n for n in range(1, 24)]
    rates = [gbps * min(1, 2 * one / sizes[-1]) if size is None else gbps for one in sizes]
    rows = "".join(
        f" {one}      {count}             {rate:.6f}              {rate:.6f}   \t\t     "
        f"{rate / 8e-3 / one:.6f}\n"
        for one, rate in zip(sizes, rates, strict=True)
    )
    return f"""{RULER}
                    {title} BW Test
 Dual-port       : OFF\t\tDevice         : {device}
 Number of qps   : {qps}\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 TX depth        : 128
 Mtu             : {mtu}[B]
 Link type       : Ethernet
 GID index       : 3
 rdma_cm QPs     : {"ON" if cm else "OFF"}
 Data ex. method : {"rdma_cm" if cm else "Ethernet"}
{RULER}
{locals_}{remotes}{RULER}
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
{rows}{RULER}
"""


def two_digits(match):
    """Write a byte of a GID as perftest does."""
    return match[0].zfill(2)


def main():  # noqa: PLR0912, PLR0915  (one branch for each fault)
    """Behave like one side of perftest."""
    test = os.path.basename(sys.argv[0])  # noqa: PTH119  (pathlib would double the start-up time)
    version = os.environ.get("FAKE_VERSION", "")
    gpu = next((word.partition("=")[2] for word in sys.argv if word.startswith("--use_cuda=")), None)
    if gpu is not None and "without-cuda" in version:
        print(" Unsupported memory type")
        return 1
    if "--version" in sys.argv:
        print(f"Version: {os.environ.get('FAKE_VERSION', '6.22')}")
        return 0
    if gpu is not None:
        buses = ("0000:18:00.0", "0000:2a:00.0", "0000:ab:00.0", "0000:bc:00.0")
        assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        print(gpu_lines("cuda", int(gpu), buses, "--use_cuda_dmabuf" in sys.argv), end="")
    options = dict(word.partition("=")[::2] for word in sys.argv[1:] if word.startswith("--"))
    host = next((word for word in sys.argv[1:] if not word.startswith("--")), None)
    seen = {"node": os.environ["SLURMD_NODENAME"], "side": "client" if host else "server"}
    seen |= {"device": options["--ib-dev"], "test": test}
    with open(os.environ["FAKE_FAULTS"]) as file:  # noqa: PTH123
        found = [f for f in json.load(file) if all(seen[k] == f[k] for k in f if k not in ("fault", "times"))]
    faults = [f["fault"] for f in found]
    if "crash" in faults:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "deaf" in faults:
        time.sleep(60)
    port = int(options["--port"])
    if host:
        try:
            sock = socket.create_connection((host, port), timeout=5)
        except OSError:
            print(f"Couldn't connect to {host}:{port}", file=sys.stderr)
            return 1
    else:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # Every node of the test has the same ports, so each binds the address of its own NIC.
            listener.bind((f"127.77.{int(seen['device'][3:]) + 1}.{seen['node'][1:]}", port))
        except OSError:
            print(f"Couldn't listen to port {port}", file=sys.stderr)
            return 1
        listener.listen(1)
        sock, _ = listener.accept()
    if "hang" in faults:
        time.sleep(60)
    sock.sendall(b"x")
    if not sock.recv(1):
        return 1
    if "slow" in faults:
        time.sleep(1.0)
    clock = "noclock" not in faults
    if host and not clock:
        log = os.environ["FAKE_FAULTS"] + f".{seen['node']}.{port}.{seen['device']}"
        with open(log, "a+") as file:  # noqa: PTH123
            file.seek(0)
            clock = len(file.read()) >= found[0]["times"]
            file.write("x")
    if host:
        if not clock:  # as perftest 4.5 says it (Debian 12, a busy virtual machine)
            print("Correlation coefficient r^2: 0.891538 < 0.9", file=sys.stderr)
        gbps = 97.25 if clock else 0.0
        if "low" in faults:
            log = os.environ["FAKE_FAULTS"] + f".low.{seen['node']}.{host}"
            with open(log, "a+") as file:  # noqa: PTH123
                file.seek(0)
                gbps = 60.0 if len(file.read()) < found[0]["times"] else gbps
                file.write("x")
        own = f"127.77.{int(seen['device'][3:]) + 1}.{seen['node'][1:]}"
        device, mtu = seen["device"], options["--mtu"]
        both = "--bidirectional" in options
        gbps = 2 * gbps if both else gbps
        size = None if "--all" in options else int(options["--size"])
        qps, cm = int(options["--qp"]), "--rdma_cm" in options
        # An own count only where it is no plain test: the others' outputs were written for 1,000.
        count = int(options["--iters"]) if size is None or qps != 1 or cm else None
        print(report(test, size, gbps, (own, host), device, mtu, both, qps=qps, cm=cm, count=count))
    return 0


if __name__ == "__main__":
    sys.exit(main())
