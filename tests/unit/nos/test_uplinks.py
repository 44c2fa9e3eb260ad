"""How a leaf's uplinks shared the mesh: idle ones, utilisation, imbalance, and who is named for it."""

import json

import pytest

from shakedown.judge.localise.suspects import idle_uplinks
from shakedown.nos.readings import IDLE, IMBALANCE, RECEIVED, SENT, Carried, SwitchReading, readings, spread
from shakedown.records.base import Stage
from tests.kit import records

GB = 10**9


def carried(*tx_gb: float | None, rx_gb: float = 100) -> dict[str, Carried]:
    """Uplinks of 400 Gb/s by what each sent."""
    return {
        f"Ethernet{i}": Carried(400, None if tx is None else int(tx * GB), int(rx_gb * GB))
        for i, tx in enumerate(tx_gb)
    }


def test_an_uplink_that_is_down_is_idle_and_no_other_is():
    """Catches a lost uplink that no counter of errors shows, and its busier siblings blamed for it."""
    found, imbalance = spread(carried(100, 0.001, 100, 100), 20)
    assert [found[port][IDLE] for port in sorted(found)] == [0, 1, 0, 0]
    assert found["Ethernet0"][SENT] == 10 and found["Ethernet1"][RECEIVED] == 10  # 100 GB in 20 s of 400 Gb/s
    assert imbalance == 134  # (100 - 0.001) / 75.0


def test_one_way_alone_is_enough():
    """Catches an uplink over which nothing comes back taken for one at work."""
    uplinks = carried(100, 100)
    uplinks["Ethernet1"] = Carried(400, 100 * GB, 0)
    found, _ = spread(uplinks, 20)
    assert (found["Ethernet0"][IDLE], found["Ethernet1"][IDLE]) == (0, 1)


@pytest.mark.parametrize("tx", [(0.000001, 0), (0, 0)])
def test_a_mesh_that_used_no_uplink_accuses_none(tx):
    """Catches an uplink blamed because a routing protocol says less over it than over its neighbour."""
    found, _ = spread(carried(*tx, rx_gb=0), 20)
    assert [found[port][IDLE] for port in sorted(found)] == [0, 0]


def test_what_was_not_read_is_not_idle():
    """Catches a port without counters passed, or failed, as one that carried nothing."""
    found, imbalance = spread(carried(100, None, 100), 20)
    assert found["Ethernet1"][IDLE] is None and found["Ethernet1"][SENT] is None
    assert imbalance is None


def reading(when: str, taken: str, tx_bytes: dict[str, int]) -> SwitchReading:
    """A Linux leaf with one port of a host and two uplinks."""
    ports = {"swp1": "n1/fab0", "up1": "spine1/swp1", "up2": "spine2/swp1"}
    errors = {"errors": 0, "dropped": 0, "missed_errors": 0, "over_errors": 0, "fifo_errors": 0}
    links = [
        {
            "ifname": port,
            "link_type": "ether",
            "stats64": {
                "rx": {**errors, "packets": 0, "bytes": tx_bytes[port]},
                "tx": {**errors, "packets": 0, "bytes": tx_bytes[port], "carrier_changes": 2},
            },
        }
        for port in ports
    ]
    cabling = [
        {"port": port, "host": end.partition("/")[0], "netdev": end.partition("/")[2]}
        | ({"rail": "rail0"} if port == "swp1" else {"role": "uplink", "speed_gbps": 100})
        for port, end in ports.items()
    ]
    return SwitchReading.model_validate(
        {
            "schema": 1,
            "switch": "leaf1",
            "nos": "linux",
            "when": when,
            "taken": taken,
            "classes": {"priority": 3, "traffic_class": 3, "queue": 3, "cnp_queue": 6},
            "cabling": cabling,
            "outputs": {
                "links": {"command": "ip", "stdout": json.dumps(links)},
                "qdiscs": {"command": "tc", "stdout": "[]"},
            },
        }
    )


def test_a_readings_idle_uplink_is_named_with_switch_and_port():
    """Catches an uplink that carried nothing by the switch's own counters, told without its port."""
    nothing = {"swp1": 0, "up1": 0, "up2": 0}
    lines = readings(
        reading("before", "2026-01-01T00:00:00.000000Z", nothing),
        reading("after", "2026-01-01T00:01:00.000000Z", {"swp1": 60 * GB, "up1": 60 * GB, "up2": 5000}),
        run="r1",
        stage=Stage.FABRIC,
        test="switches",
    )
    of = {(line.port, line.counter): line.delta for line in lines}
    assert (of["up1", IDLE], of["up2", IDLE]) == (0, 1)
    assert of["up1", SENT] == 8 and of["switch", IMBALANCE] == 200
    assert ("swp1", IDLE) not in of
    (cause,) = idle_uplinks(lines, {("leaf1", "up1"), ("leaf1", "up2")})
    assert str(cause.element) == "uplink leaf1 spine2" and cause.blamed
    assert "leaf1:up2 to spine2:swp1 carried less than 1 %" in cause.evidence[0]
    assert idle_uplinks(lines, {("leaf1", "up1")}) == []


@pytest.mark.parametrize(("leaves", "blamed"), [(2, False), (3, True)])
def test_a_spine_that_nobody_uses_is_one_cause_and_with_two_leaves_a_suspect(leaves, blamed):
    """Catches: a good leaf's uplink blamed because the other leaf's link to that spine is down."""
    ends = [(f"leaf{n}", f"up{spine}") for n in range(leaves) for spine in (0, 1)]
    lines = [
        records.counter(
            test="switches",
            kind="switch_port",
            device=leaf,
            port=port,
            peer=f"spine{port[-1]}/swp{leaf[-1]}",
            counter=IDLE,
            after=int(port == "up1"),
        )
        for leaf, port in ends
    ]
    (cause,) = idle_uplinks(lines, set(ends))
    assert (str(cause.element), cause.blamed) == ("spine spine1", blamed)
    assert [str(rival) for rival in cause.rivals] == (
        [] if blamed else ["uplink leaf0 spine1", "uplink leaf1 spine1"]
    )
    assert "leaf0:up1 to spine1:swp0" in cause.evidence[0]
    # One leaf's own link, with others' in use: that leaf's.
    lines = [line for line in lines if (line.device, line.port) == ("leaf0", "up1") or not line.after] + [
        line.model_copy(update={"after": 0}) for line in lines if line.after and line.device != "leaf0"
    ]
    (cause,) = idle_uplinks(lines, set(ends))
    assert (str(cause.element), cause.blamed) == ("uplink leaf0 spine1", True)


@pytest.mark.parametrize(
    ("sent", "received", "way", "said"),
    [
        (30, 0, " down", "or spine1 forwards nothing to leaf0"),
        (0, 30, " up", "or leaf0 sends nothing to spine1"),
        (0, 0, "", "it is down"),
    ],
)
def test_an_uplink_that_carries_one_way_leaves_the_spine_in_doubt(sent, received, way, said):
    """Catches: a good link blamed for a spine that forwards in one direction only."""
    about = {
        "test": "switches",
        "kind": "switch_port",
        "device": "leaf0",
        "port": "up1",
        "peer": "spine1/swp0",
    }
    counted = {IDLE: 1, SENT: sent, RECEIVED: received}
    lines = [records.counter(**about, counter=name, after=n) for name, n in counted.items()]
    lines.append(records.counter(**{**about, "port": "up2", "peer": "spine2/swp0"}, counter=IDLE, after=0))
    (cause,) = idle_uplinks(lines, {("leaf0", "up1"), ("leaf0", "up2")})
    assert (str(cause.element), cause.blamed) == (f"uplink leaf0 spine1{way}", not way)
    assert said in cause.evidence[0] and [*map(str, cause.rivals)] == (["spine spine1"] if way else [])
