"""Inputs of the cases of the traffic class where RoCE arrives."""

# ruff: noqa: D103  (expected.json names the fault of each case)

from tests.decision.case_folder import WRITE_BW, Case, Json, case, good

ARRIVES = {"id": "intent.traffic_class", "value": 100.0, "tolerance": 0.01, "ceiling": 100.0}
ARRIVES |= {"ceiling_source": "all of it", "unit": "%", "better": "higher", "kind": "contract"}
ARRIVES |= {"source": "the fabric intent"}
PAIR = ["n1", "n2"]


def ring(c: Case, *but: tuple[str, str]) -> Json:
    """Plan both directions on two rails, and record all as whole but for some (rail, direction)."""
    c.rails = ["rail0", "rail1"]
    c.all_lines(c.plan(WRITE_BW, [PAIR]), good)
    ways = ["forward", "reverse"]
    item = c.plan(ARRIVES, [PAIR], stage="config", test="traffic_class", metric="share", directions=ways)
    for rail in c.rails:
        for way in ways:
            if (rail, way) not in but:
                detail = "n2/rail0 receives n1's RoCE with DSCP 26, 500 packets of data looked at"
                c.line(item, PAIR, 100.0, rail=rail, direction=way, detail=detail)
    return item


@case
def dscp_rewritten_on_the_way(c: Case) -> None:
    item = ring(c, ("rail0", "forward"))
    detail = (
        "n2/rail0 receives n1's RoCE with DSCP 0, wanted 26: rewritten on the way, leaf0 swp1 to leaf0 swp2, "
        "whose settings read as wanted"
    )
    c.line(item, PAIR, 0.0, rail="rail0", direction="forward", detail=detail)


@case
def ecn_bleached_on_the_way(c: Case) -> None:
    item = ring(c, ("rail1", "reverse"))
    detail = (
        "n1/rail1 receives n2's RoCE with DSCP 26 and Not-ECT (40 % of 500 packets), wanted ECT(0): "
        "ECN bleached on the way, leaf0 swp4 to leaf0 swp3"
    )
    c.line(item, PAIR, 60.0, rail="rail1", direction="reverse", detail=detail)


@case
def arriving_class_not_seen(c: Case) -> None:
    item = ring(c, ("rail0", "forward"))
    message = (
        "nothing shows in which class n1's RoCE reaches n2/rail0: the driver of fab0 counts no received "
        "bytes by priority; fab0 cannot be listened to: Operation not permitted"
    )
    problem = {"kind": "not-run", "message": message}
    c.line(item, PAIR, None, rail="rail0", direction="forward", problem=problem)
