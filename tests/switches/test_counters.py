"""The role switch_counters on a switch with a command line, and what is made of its reading."""

import pytest

from shakedown.nos.cable_ends import links_of, neighbours_of
from shakedown.nos.readings import load_reading
from shakedown.nos.registry import counters_of
from shakedown.nos.system import Classes
from tests.switches.test_cli import PORTS, device, variables
from tests.unit.nos.os9_printed import OS9_COUNTERS, OS9_LLDP, OS9_PORT

CLASSES = Classes(priority=3, traffic_class=3, queue=3, cnp_queue=6)


@pytest.mark.parametrize("lldp", ["on", "refused"])
def test_an_os9_switch_is_read_port_by_port(lldp, tmp_path, loop, play):
    """Catches one port's output saved under another's name, and a switch unread because LLDP is off there."""
    switch = device("os9", **({"refuse": "^show lldp"} if lldp == "refused" else {}))
    switch.answers = {
        f"show interfaces {port}": OS9_PORT.replace("1/1 is", f"1/{number} is").replace(
            "978467", f"97846{number}"
        )
        for number, port in enumerate(PORTS["os9"], start=1)
    }
    switch.answers["show lldp neighbors detail"] = OS9_LLDP
    loop(switch.start())
    asked = {"switch_counters_when": "before", "switch_counters_dir": str(tmp_path / "raw")}
    result = play({**variables(switch), **asked}, role="switch_counters")
    assert result.code == 0, result.output
    read = load_reading(tmp_path / "raw/leaf1.before.json")
    outputs = {label: one.stdout for label, one in read.outputs.items()}
    for number, port in enumerate(PORTS["os9"], start=1):
        found = counters_of("os9")(outputs, CLASSES)[port]
        assert found == OS9_COUNTERS | {"rx_packets": 978460 + number}
        assert links_of(read)[port] == {"mtu_bytes": 9198, "speed_gbps": 100.0, "fec": "rs"}
    heard = neighbours_of(read)
    assert heard is None if lldp == "refused" else heard["hundredGigE 1/1"] == [("n1", "fab0")]
