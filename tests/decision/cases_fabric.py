"""Inputs of the cases of the fabric: a mesh with a bad NIC, one that lost a node, and switches' settings."""

# ruff: noqa: D103  (expected.json names the fault of each case)

from itertools import combinations

from tests.decision.case_folder import DROPS, WRITE_BW, Case, case, good

INTENT = {"id": "intent.switch", "value": 0.0, "limit": 0.0, "unit": "1", "better": "lower"}
INTENT |= {"kind": "contract", "source": "the fabric intent"}


def mesh(c: Case, nodes: int) -> None:
    """Plan every pair, rail and direction."""
    c.nodes, c.rails = [f"n{i}" for i in range(1, nodes + 1)], ["rail0", "rail1"]
    c.mesh = c.plan(WRITE_BW, combinations(c.nodes, 2), directions=["forward", "reverse"])


def cells(c: Case):
    """Number, pair, rail, direction and data's sink of every cell of the mesh."""
    places = [(p, r, d) for p in c.mesh["nodes"] for r in c.rails for d in c.mesh["directions"]]
    for number, (pair, rail, direction) in enumerate(places):
        yield number, pair, rail, direction, pair[1] if direction == "forward" else pair[0]


@case
def mesh_slow_receiver(c: Case) -> None:
    mesh(c, 6)
    for number, pair, rail, direction, sink in cells(c):
        value = 231.0 if (rail, sink) == ("rail1", "n3") else good(number)
        c.line(c.mesh, pair, value, rail=rail, direction=direction)


BUSY = {
    "node": "n3",
    "said": "n3 was busy: 'stress-ng' of user 1002 (process 4711) took 3.9 of its 4 CPUs",
    "most": 1.0,
}


@case
def mesh_busy_cpus(c: Case) -> None:
    mesh(c, 6)
    for number, pair, rail, direction, sink in cells(c):
        value = 231.0 if sink == "n3" else good(number)
        busy = {"loaded": [BUSY]} if "n3" in pair else {}
        c.line(c.mesh, pair, value, rail=rail, direction=direction, **busy)


@case
def mesh_node_killed(c: Case) -> None:
    mesh(c, 3)
    for number, pair, rail, direction, _ in cells(c):
        gone = "n3" in pair and not (pair[0] == "n1" and rail == "rail0")  # killed in its first round
        problem = {"kind": "environment", "message": "n3 lost: does not answer for 15 s"}
        c.line(
            c.mesh,
            pair,
            None if gone else good(number),
            rail=rail,
            direction=direction,
            problem=problem if gone else None,
        )


def setting(c: Case, test: str, node: str, value: float, detail: str, **params: object) -> None:
    """Plan and record one cell of a switch's settings, or of a cable's two ends."""
    rail = params.pop("rail", "rail0")
    item = c.plan(INTENT, [[node]], stage="config", test=test, metric="wrong", params=params, rails=[rail])
    c.line(item, [node], value, detail=detail)


@case
def switch_ecn_off(c: Case) -> None:
    c.all_lines(c.plan(WRITE_BW, [["n1", "n2"]]), good)
    setting(c, "switch_settings", "leaf0", 0, "leaf0 swp1: ", port="swp1")
    setting(c, "switch_settings", "leaf0", 1, "leaf0 swp2: swp2 queues: roce.ecn false -> true", port="swp2")


@case
def cable_ends_differ(c: Case) -> None:
    c.all_lines(c.plan(WRITE_BW, [["n1", "n2"]]), good)
    for node, port in (("n1", "swp1"), ("n2", "swp2")):
        size = 1500 if node == "n2" else 9000
        text = f"MTU: {node}/fab0 has 9000 bytes, leaf0/{port} has {size} bytes"
        setting(c, "crosscheck", node, float(size == 1500), text, what="mtu")


@case
def cables_swapped(c: Case) -> None:
    c.all_lines(c.plan(WRITE_BW, [["n1", "n2"]]), good)
    for node, port, other in (("n1", "swp1", "n2"), ("n2", "swp2", "n1")):
        text = (
            f"cabling of {node}/fab0 and leaf0/{port} by plan: leaf0/{port} has {other}/fab0 at its other end"
        )
        setting(c, "crosscheck", node, 1.0, text, what="cabling")


@case
def two_machines_one_name(c: Case) -> None:
    c.all_lines(c.plan(WRITE_BW, [["n1", "n2"]]), good)
    words = "n1 is heard on swp1 and swp2: two machines with one name"
    setting(c, "crosscheck", "n1", 1.0, words, what="cabling")
    item = c.plan(
        INTENT, [["n2"]], stage="config", test="crosscheck", metric="wrong", params={"what": "cabling"}
    )
    message = f"cabling of n2/fab0 and leaf0/swp2 is not proven: {words}"
    c.line(item, ["n2"], None, problem={"kind": "setup", "message": message}, detail=message)


@case
def roce_in_another_queue(c: Case) -> None:
    c.all_lines(c.plan(WRITE_BW, [["n1", "n2"]]), good)
    for port in ("swp1", "swp2"):
        c.plan(
            DROPS,
            [["leaf0"]],
            metric="counter.roce_misclassified_rx_packets",
            params={"port": port},
            rails=[None],
        )
    c.counter("roce_misclassified_rx_packets", "leaf0", "swp1", 40, 6440)
    c.counter("roce_misclassified_rx_packets", "leaf0", "swp2", 40, 40)


PORTS = {"n1": "swp1", "n2": "swp2", "n3": "swp3"}


def lossy(
    c: Case, missed: dict[str, int], leaf: dict[str, int], nics: dict[str, int], nodes: int = 2
) -> None:
    """Plan a mesh that is fast and must miss no packet; count what was missed, and dropped where read."""
    c.nodes = list(PORTS)[:nodes]
    pairs = list(combinations(c.nodes, 2))
    c.all_lines(c.plan(WRITE_BW, pairs, directions=["forward", "reverse"]), good)
    for node in c.nodes:
        c.plan(DROPS, [[node]], metric="counter.rdma.out_of_seq_request", params={"port": "rxe0"})
        nic = {"kind": "nic", "rail": "rail0", "peer": f"leaf0/{PORTS[node]}"}
        c.counter("rdma.out_of_seq_request", node, "rxe0", 5, 5 + missed.get(node, 0), **nic)
        if node in nics:
            c.counter("netdev.rx_dropped", node, "rxe0", 0, nics[node], **nic)
        if node in leaf:
            port = {"rail": "rail0", "peer": f"{node}/fab0", "test": "switches"}
            c.counter("tx_drops", "leaf0", PORTS[node], 7, 7 + leaf[node], **port)


NONE = {"n1": 0, "n2": 0, "n3": 0}


@case
def loss_of_the_sender(c: Case) -> None:
    lossy(c, {"n1": 33}, NONE, NONE)


@case
def loss_of_the_sender_of_three(c: Case) -> None:
    lossy(c, {"n1": 33, "n3": 40}, NONE, NONE, nodes=3)


@case
def loss_in_the_leaf(c: Case) -> None:
    lossy(c, {"n1": 33}, {"n1": 30, "n2": 0}, NONE)


@case
def loss_in_the_receivers_nic(c: Case) -> None:
    lossy(c, {"n1": 33}, NONE, {"n1": 33, "n2": 0})


@case
def loss_that_no_leaf_tells_of(c: Case) -> None:
    lossy(c, {"n1": 33}, {}, NONE)
