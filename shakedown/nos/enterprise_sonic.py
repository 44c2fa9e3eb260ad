"""Dell Enterprise SONiC: configured over RESTCONF; its counters lie in a database like community SONiC's.

The fields of the settings' read-back are those of the role's filter `enterprise_sonic.py`.
"""

from shakedown.nos import lldp, sonic
from shakedown.nos.crosscheck import CABLING, DSCP, MTU, PFC
from shakedown.nos.system import SwitchSystem, Tree, numbers


def end(found: Tree, port: str) -> Tree:
    """Return what a port's read-back says of the cable's end."""
    groups = {
        key.rpartition(" ")[2]: value for key, value in found.items() if key.startswith("group of DSCP ")
    }
    return {
        "mtu_bytes": found[f"mtu {port}"],
        "pfc_priorities": frozenset(found[f"lossless {port}"]),
        "dscp_map": {n: int(group) for some, group in groups.items() for n in numbers(some)},
    }


SYSTEM = SwitchSystem(
    name="enterprise_sonic",
    parse=sonic.parse,  # the same daemons fill the same database
    reported=sonic.reported,
    may_report=sonic.MAY_REPORT,
    tells=frozenset({MTU, PFC, DSCP, CABLING}),
    end=end,
    neighbours=lldp.by_every_name,
    model=sonic.MODEL,
    version=sonic.VERSION,
    cable_lengths_m=(5, 40, 300),  # the choices of sonic_qos_interfaces' cable_length
    lossless_limit=2,  # sonic_qos_interfaces documents `priorities` as two at most
)
