"""A leaf that is a Linux bridge: counters from `ip -s -s -j link`, `tc -s -j qdisc` and `tc -s -j filter`.

The handles (1:, 10:, 20:, 30:) and preferences (10 to 31) are those of the role's program, roce_leaf.py.
The kernel has no PFC, no watchdog and no headroom, so those counters are absent.
"""

from typing import Any, NamedTuple

from shakedown.nos import lldp
from shakedown.nos.crosscheck import CABLING, DSCP, MTU
from shakedown.nos.system import Classes, Outputs, PortCounters, SwitchSystem, Tree, count, output
from shakedown.records.tool_text import TextSource, quote

_REPORTED = (
    *("rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "rx_drops", "tx_drops", "rx_errors", "tx_errors"),
    *(
        "link_flaps",
        "roce_rx_packets",
        "roce_rx_bytes",
        "roce_tx_packets",
        "roce_tx_bytes",
        "roce_queue_drops",
    ),
    *("roce_misclassified_rx_packets", "cnp_rx_packets", "cnp_tx_packets", "cnp_queue_drops", "ecn_marked"),
)
# (in, out): what enters on one port of a rail leaves on another, or was lost inside.
FORWARDED = ("roce_rx_packets", "roce_tx_packets")
_CLASS_OF_PREF = {1: "roce_rx", 2: "cnp_rx", 3: "roce_misclassified_rx"}  # tens of the preference
_FILTERS = "filters "  # label prefix; the port follows


def reported(_classes: Classes) -> tuple[str, ...]:
    """Name the counters of every configured port."""
    return _REPORTED


def parse(outputs: Outputs, classes: Classes) -> PortCounters:
    """Return the counters of every port.

    What a packet should be is in handles and preferences. RoCE that the port puts into another class than the
    intent's is misclassified there, whatever its DSCP. Raises BadInput: anything that is not these commands'
    JSON.
    """
    ports = links(outputs)
    qdiscs = _objects(outputs, "qdiscs")
    for qdisc in qdiscs:
        port = ports.get(str(qdisc.get("dev")))
        if port is not None:
            _add_qdisc(port, qdisc)
    for name, port in ports.items():
        _add_past_the_queues(port, [one for one in qdiscs if one.get("dev") == name])
    for label in outputs:
        if label.startswith(_FILTERS):
            port = ports.get(label.removeprefix(_FILTERS))
            if port is not None:
                for rule in _objects(outputs, label):
                    _add_filter(port, rule, classes, label)
    return ports


def links(outputs: Outputs) -> PortCounters:
    """Return what `ip -s -s -j link show` has of every Ethernet interface."""
    found = {str(link.get("ifname")): _link_counters(link) for link in _objects(outputs, "links")}
    return {port: counters for port, counters in found.items() if counters}


def _objects(outputs: Outputs, label: str) -> list[dict[str, Any]]:
    source = TextSource(output(outputs, label))
    document = source.json()
    if not isinstance(document, list) or not all(isinstance(one, dict) for one in document):
        source.refuse(f"{label}: not a JSON list of objects")
    return document


class _Stats(NamedTuple):
    """Reads counters of one JSON object; what is missing or no count is refused."""

    values: object
    what: str

    def __call__(self, key: str) -> int:
        value = self.values.get(key) if isinstance(self.values, dict) else None
        return count(value, f"{self.what}: {key}")


def _link_counters(link: dict[str, Any]) -> dict[str, int]:
    stats = link.get("stats64")
    if not isinstance(stats, dict) or link.get("link_type") != "ether":
        return {}
    what = f"links: {quote(link.get('ifname'))}"
    rx, tx = (_Stats(stats.get(way), f"{what} {way}") for way in ("rx", "tx"))
    counters = {f"rx_{key}": rx(key) for key in ("packets", "bytes", "errors")}
    counters |= {f"tx_{key}": tx(key) for key in ("packets", "bytes", "errors")}
    # Packets that ring or NIC had no room for. Not `dropped`: there the kernel counts every LLDP frame that a
    # bridge rightly does not forward. FORWARDED shows what the bridge itself loses.
    counters["rx_drops"] = sum(rx(f"{why}_errors") for why in ("missed", "over", "fifo"))
    counters["tx_drops"] = tx("dropped")
    counters["link_flaps"] = tx("carrier_changes")
    return counters


def _add_qdisc(port: dict[str, int], qdisc: dict[str, Any]) -> None:
    stat = _Stats(qdisc, f"qdiscs: {quote(qdisc.get('dev'))} {quote(qdisc.get('handle'))}")
    # A root's drops include those of its children, a planted fault's root those of the tree below it.
    if qdisc.get("root"):
        port["tx_drops"] += stat("drops")
    if qdisc.get("handle") == "20:" and qdisc.get("kind") == "red":
        port["roce_tx_packets"] = stat("packets")
        port["roce_tx_bytes"] = stat("bytes")
        port["roce_queue_drops"] = stat("drops")
        port["ecn_marked"] = stat("marked")
    if qdisc.get("handle") == "10:":
        port["cnp_tx_packets"] = stat("packets")
        port["cnp_queue_drops"] = stat("drops")


def _add_past_the_queues(port: dict[str, int], qdiscs: list[dict[str, Any]]) -> None:
    """Count what a root above the queues sent past them as sent, of whatever class it was.

    netem sends a packet that overtakes others without asking the queues below it (Linux, netem_dequeue in
    net/sched/sch_netem.c). No queue counts it, and it would be told as lost in the switch.
    """
    root = next((one for one in qdiscs if one.get("root") and one.get("handle") != "1:"), None)
    tree = next((one for one in qdiscs if one.get("handle") == "1:" and not one.get("root")), None)
    if root is None or tree is None or "roce_tx_packets" not in port:
        return
    for what in ("packets", "bytes"):
        of_root, of_tree = (_Stats(one, f"qdiscs: {quote(one.get('dev'))}")(what) for one in (root, tree))
        port[f"roce_tx_{what}"] += max(of_root - of_tree, 0)


def _add_filter(port: dict[str, int], rule: dict[str, Any], classes: Classes, label: str) -> None:
    options = rule.get("options")
    if not options:
        return  # tc lists every filter's head once without its content
    pref, actions = rule.get("pref"), options.get("actions")
    if not isinstance(pref, int) or not isinstance(actions, list) or len(actions) != 1:
        return  # not one of ours; the read-back of the configuration names it
    name = _CLASS_OF_PREF.get(pref // 10)
    if name is None:
        return
    if name == "roce_rx" and str(actions[0].get("priority")).lstrip(":") != f"{classes.traffic_class:x}":
        name = "roce_misclassified_rx"
        for counter in ("roce_rx_packets", "roce_rx_bytes"):
            port.setdefault(counter, 0)  # nothing came in the class, and that was read
    stat = _Stats(actions[0].get("stats"), f"{label} pref {pref}")
    # IPv4 and IPv6 have a filter each.
    port[f"{name}_packets"] = port.get(f"{name}_packets", 0) + stat("packets")
    if name == "roce_rx":
        port["roce_rx_bytes"] = port.get("roce_rx_bytes", 0) + stat("bytes")


def end(found: Tree, port: str) -> Tree:
    """Return what a port's read-back says of the cable's end."""
    classes = [one for one in found[port]["classes"] or [] if "dscp" in one]
    return {
        "mtu_bytes": found[port]["mtu"],
        # Each DSCP has a filter for IPv4 and one for IPv6: the first one found stands for both here. That
        # both are as they should be is compared with the port's settings.
        "dscp_map": {
            one["dscp"]: one["traffic_class"]
            for one in sorted(classes, key=lambda one: one["pref"], reverse=True)
        },
    }  # no PFC: a Linux bridge has none to tell


SYSTEM = SwitchSystem(
    name="linux",
    parse=parse,
    reported=reported,
    forwarded=FORWARDED,
    tells=frozenset({MTU, DSCP, CABLING}),  # a bridge has no PFC, and a virtual port neither rate nor FEC
    end=end,
    neighbours=lldp.by_every_name,
)
