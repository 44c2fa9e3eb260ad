"""Inputs of the cases of incast: many senders at one NIC."""

# ruff: noqa: D103  (expected.json names the fault of each case)

from tests.decision.case_folder import WRITE_BW, Case, Json, case

HELD = {"id": "intent.incast_held_back", "value": 1.0, "limit": 1.0, "unit": "1", "better": "higher"}
HELD |= {"kind": "contract", "source": "the fabric intent: PFC is on"}
SENDERS: Json = {"senders": 7, "size_bytes": 1048576}


def _incast(c: Case, total: float, held: float | None, **fields: Json) -> None:
    """Seven senders of 400G each at one NIC of 400G: what it receives is shown and held to its ceiling."""
    c.nodes, c.rails = ["n1"], ["rail0"]
    where = {"test": "incast", "params": SENDERS}
    shown = {**WRITE_BW, "id": "crowd", "tolerance": 0.99}
    c.line(c.plan(shown, [["n1"]], metric="bandwidth_in", required=False, **where), ["n1"], total)
    item = c.plan(HELD, [["n1"]], metric="held_back", required=held is not None, **where)
    c.line(item, ["n1"], held, **fields)


@case
def incast_held_back(c: Case) -> None:
    _incast(c, 371.0, 48213.0, detail="rdma.np_ecn_marked_roce_packets 48213")


@case
def incast_never_held_back(c: Case) -> None:
    told = "ethtool.rx_prio3_pause 0, rdma.np_ecn_marked_roce_packets 0"
    _incast(c, 371.0, 0.0, detail=told)


@case
def incast_above_the_link(c: Case) -> None:
    _incast(c, 455.0, 48213.0)
