"""nvidia-smi: topology and queries, with and without header, units and values."""

import captured
import pytest

from shakedown.benchmarks.gpu.output import (
    QueryResult,
    TopologyResult,
    parse_nvidia_smi,
    parse_query,
    parse_topology,
)
from tests.kit.cases import cases
from tests.kit.refusal import refused

TOPOLOGY = captured.read("nvidia-smi_topo_m_4xH200.txt")
NICS = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tPIX\t0-31,64-95\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\t32-63\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n\n"
)
QUERY = (
    "index, name, pcie.link.width.current, memory.total [MiB], power.draw [W],"
    " ecc.errors.uncorrected.volatile.total\n"
    "0, NVIDIA H200, 16, 143771 MiB, 75.21 W, 0\n"
    "1, NVIDIA H200, 8, 143771 MiB, [N/A], [Not Supported]\n"
)


def test_topology_of_four_gpus():
    """Catches rows and columns shifted by the tab before the first name."""
    result = parse_topology(TOPOLOGY)
    assert [row.device for row in result.rows] == ["GPU0", "GPU1", "GPU2", "GPU3"]
    assert (result.link("GPU0", "GPU3"), result.link("GPU2", "GPU2")) == ("NV18", "X")
    assert (result.rows[1].cpu_affinity, result.rows[1].numa_affinity, result.rows[1].nic) == (
        "0-63",
        "0",
        None,
    )
    with pytest.raises(KeyError):
        result.link("GPU0", "GPU9")


def test_topology_with_nics():
    """Catches the RDMA device of a NIC lost, and the underline of a terminal."""
    result = parse_nvidia_smi(NICS)
    assert isinstance(result, TopologyResult)
    assert (result.link("GPU0", "NIC0"), result.link("GPU1", "NIC0")) == ("PIX", "SYS")
    assert [row.nic for row in result.rows] == [None, None, "mlx5_0"]
    assert result.rows[1].cpu_affinity == "32-63"
    assert result.rows[2].cpu_affinity is None


@cases(
    "damage, message",
    (lambda t: t.replace("GPU1\tNV18", "GPU1\tNV12"), "back it is"),
    (lambda t: t.replace("\tPIX\t0", "\tBUS\t0"), "unknown link"),
    (lambda t: t.replace("NIC0: mlx5_0", ""), "NIC legend for NIC0"),
    (lambda t: t.split("Legend")[0], "ends before its legend"),
    (lambda t: t.rstrip(), "ends before the end of its last line"),
    (lambda t: t.replace("GPU1\tNV18", "GPU2\tNV18"), "rows are not the devices"),
    (lambda t: t.replace("NIC0\tPIX\tSYS\t X \t\t\t\t\n", "NIC0\tPIX\n"), "has 1 links, 3 are due"),
    (lambda t: t.replace("GPU1\tNIC0", "GPU1\tNIC0\tbanana"), "not the header"),
)
def test_damaged_topology_is_refused(damage, message):
    """Catches a matrix whose halves disagree, or that lost a line."""
    assert damage(NICS) != NICS
    refused(message, parse_topology, damage(NICS))


def test_query_with_header_and_units():
    """Catches "[N/A]" read as 0 watts, and a unit left in the value."""
    result = parse_nvidia_smi(QUERY)
    assert isinstance(result, QueryResult)
    assert result.units == {"memory.total": "MiB", "power.draw": "W"}
    assert list(result.gpus[0].values()) == [0, "NVIDIA H200", 16, 143771, 75.21, 0]
    assert (result.gpus[1]["power.draw"], result.gpus[1]["ecc.errors.uncorrected.volatile.total"]) == (
        None,
        None,
    )
    assert parse_query(QUERY.replace(" MiB,", ",").replace(" W,", ",")).gpus == result.gpus  # nounits


def test_a_list_that_is_empty_is_read_and_a_table_without_rows_is_not():
    """Catches: a node whose GPUs run nothing refused as cut off; a query of no GPU accepted."""
    for header in ("gpu_uuid, pid, used_gpu_memory [MiB]\n", "gpu_uuid, remapped_rows.pending\n"):
        assert parse_nvidia_smi(header).gpus == ()
    for text in ("gpu_uuid, pid", "index, uuid\n"):
        refused("ends before the end of the table", parse_nvidia_smi, text)


def test_query_without_header():
    """Catches a first GPU eaten as the header."""
    rows = "0, NVIDIA H200, 143771 MiB, 75.21 W\n1, NVIDIA H200, 143771 MiB, [N/A]\n"
    result = parse_query(rows, fields=captured.QUERY_FIELDS)
    assert [gpu["index"] for gpu in result.gpus] == [0, 1]
    assert (result.gpus[0]["power.draw"], result.gpus[1]["power.draw"]) == (75.21, None)
    refused("no header", parse_query, rows)


@cases(
    "text, message",
    (QUERY.replace("143771 MiB, 75", "lots MiB, 75"), "finite number"),
    (QUERY.replace("143771 MiB, 75", "143771 GiB, 75"), "the header says 'MiB'"),
    (QUERY.replace("143771 MiB, 75", "[Unknown Error], 75"), "Unknown Error"),
    (QUERY.replace("143771 MiB, 75", ", 75"), "memory.total is ''"),
    (QUERY.replace(", 16, ", ", wide, "), "finite number"),
    (QUERY.replace(", 16, ", ", "), "a row of 5 columns, 6 are due"),
    (QUERY.rstrip(), "ends before the end"),
    (QUERY.splitlines()[0] + "\n", "ends before the end"),
    (QUERY.replace("index, name", "index, index"), "appears twice"),
    ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "nvidia-smi failed"),
    ("No devices were found\n", "nvidia-smi failed"),
    # `nvidia-smi -q` refused for a header that it cannot have.
    (
        "==============NVSMI LOG==============\n\nTimestamp : Fri Jul  3 22:10:46 2026\n",
        "not a query's table",
    ),
    ("+-----+\n| NVIDIA-SMI 590.48.01              Driver Version: 590.48.01 |\n", "not a query's table"),
    (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "x">\n<nvidia_smi_log>\n',
        "not a query's table",
    ),
    # "no header, name the fields" told of a topology (github.com/luigifcruz/stelline,
    # hardware/puget-threadripper-pro-wrx90.md).
    (
        "$ nvidia-smi topo -m\n        GPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity\n"
        "GPU0     X      PHB     NODE    NODE    0-23    0\n",
        "not as `nvidia-smi topo -m` prints it",
    ),
    ("GPU Topology Matrix:\n" + NICS, "not as `nvidia-smi topo -m` prints it"),
)
def test_damaged_queries_are_refused(text, message):
    """Catches a GPU that cannot be read taken for one that is fine, and a wrong reason for the refusal."""
    refused(message, parse_nvidia_smi, text)


def test_fields_with_capitals():
    """Catches fabric.cliqueId, as drivers since 550 name it, taken for a row without a header."""
    result = parse_query("index, fabric.cliqueId\n0, 32766\n")
    assert result.gpus == ({"index": 0, "fabric.cliqueId": "32766"},)


def test_a_gpu_twice():
    """Catches a GPU that is counted twice, and samples of a loop refused."""
    rows = "index, uuid\n0, GPU-a\n1, GPU-b\n"
    for more in ("0, GPU-c\n", "2, GPU-b\n"):
        refused("appears twice", parse_query, rows + more)
        assert len(parse_query(rows + more, samples=True).gpus) == 3
    stamped = "timestamp, index\n2026/11/20 12:00:00.000, 0\n2026/11/20 12:00:01.000, 0\n"
    assert len(parse_query(stamped).gpus) == 2
    assert len(parse_query("gpu_uuid, pid\nGPU-a, 7\nGPU-a, 8\n").gpus) == 2


def test_a_header_that_was_not_asked_for():
    """Catches columns read under the names of another query."""
    refused("expected were", parse_query, QUERY, fields=["index", "uuid"])


def test_a_field_that_the_driver_has_given_up():
    """Catches a healthy GPU refused for a field that no GPU has any more, and l1_cache read as a word.

    As recorded of an H200 with driver 590.48.01 (github.com/utkuozdemir/nvidia_gpu_exporter,
    internal/captures/linux-x86_64__nvidia-h200__590.48.01.txt).
    """
    result = parse_query(
        "pcie.link.width.max, index, display_mode, display_attached, ecc.errors.corrected.volatile.l1_cache,"
        " platform.chassis_serial_number, platform.slot_number\n"
        "16, 0, [Requested functionality has been deprecated], Yes, 0, , [N/A]\n"
    )
    assert list(result.gpus[0].values()) == [16, 0, None, "Yes", 0, None, None]


def test_a_unit_with_a_slash():
    """Catches the header of driver 610 taken for a row without one.

    github.com/utkuozdemir/nvidia_gpu_exporter,
    internal/captures/linux-x86_64__nvidia-geforce-rtx-2080-super__610.57.04.txt
    """
    result = parse_query("index, power_smoothing.curr_profile.ramp_up_rate [W/s]\n0, [N/A]\n")
    assert result.gpus == ({"index": 0, "power_smoothing.curr_profile.ramp_up_rate": None},)


def test_retired_pages_of_one_gpu():
    """Catches a GPU's two causes taken for one GPU that is listed twice (same captures)."""
    row = "GPU-a, [N/A], [N/A], {} Bit ECC\n"
    text = "gpu_uuid, retired_pages.address, retired_pages.timestamp, retired_pages.cause\n"
    assert len(parse_query(text + row.format("Single") + row.format("Double")).gpus) == 2
    refused("appears twice", parse_query, text + 2 * row.format("Single"))
