"""A Slurm that keeps its state in a file: `scontrol` and `sinfo` for PATH, as far as draining uses them."""

import json
import sys
from pathlib import Path

_PROGRAM = """#!{python} -SE
import json, sys
from pathlib import Path
state_file = Path({state!r})
state = json.loads(state_file.read_text())
argv = sys.argv[1:]
state["calls"].append([Path(sys.argv[0]).name, *argv])

def end(status=0, said=""):
    state_file.write_text(json.dumps(state))
    if said:
        print(said, file=sys.stderr)
    sys.exit(status)

def fields(words):
    return dict(w.split("=", 1) for w in words)

if Path(sys.argv[0]).name == "sinfo":
    for name, node in state["nodes"].items():
        print(f"{{name}}|{{node['state'].lower().replace('+drain', '')}}|{{node['reason'] or 'none'}}")
    end()
if argv[:3] == ["--oneliner", "show", "node"]:
    for name, node in state["nodes"].items():
        node["silent"] = node.get("silent", 0) - 1
        if node["silent"] == 0:
            node["state"] = node["state"].rstrip("*")
        reason = f" Reason={{node['reason']}} [{{node['by']}}@2026-11-20T02:00:00]" if node["reason"] else ""
        print(f"NodeName={{name}} CPUTot=8 State={{node['state']}} Partitions=all Extra=x{{reason}}")
    end()
if argv[:3] == ["--oneliner", "show", "reservation"]:
    for name, r in state["reservations"].items():
        print(f"ReservationName={{name}} StartTime=now Nodes={{r['Nodes']}} Users={{r['Users']}}")
    end()
if argv[0] == "update":
    f = fields(argv[1:])
    node = state["nodes"].get(f["NodeName"])
    if node is None:
        end(1, "slurm_update error: Invalid node name specified")
    if state.get("refuse"):
        end(1, "slurm_update error: Access/permission denied")
    if f["State"] == "DRAIN":
        node.update(state=node["state"].replace("+DRAIN", "") + "+DRAIN", reason=f["Reason"], by="root")
    elif f["State"] == "RESUME":
        # As the real one: for a moment after this the node has not answered yet.
        node.update(state=node["state"].replace("+DRAIN", "") + "*", reason="", by="", silent=2)
    end()
if argv[:2] == ["create", "reservation"]:
    f = fields(argv[2:])
    state["reservations"][f["ReservationName"]] = f
    end()
if argv[0] == "delete":
    if state["reservations"].pop(fields(argv[1:])["ReservationName"], None) is None:
        end(1, "Requested reservation is invalid")
    end()
end(1, f"fake scontrol does not know {{argv}}")
"""


class FakeSlurm:
    """Programs in a folder for PATH, and their state."""

    def __init__(self, folder: Path, nodes: tuple[str, ...]) -> None:
        self.bin = folder / "slurm-bin"
        self.bin.mkdir()
        self._state = folder / "slurm.json"
        state = {"nodes": {n: {"state": "IDLE", "reason": "", "by": ""} for n in nodes}, "reservations": {}}
        self._state.write_text(json.dumps({**state, "calls": []}))
        for name in ("scontrol", "sinfo"):
            program = self.bin / name
            program.write_text(_PROGRAM.format(python=sys.executable, state=str(self._state)))
            program.chmod(0o755)

    @property
    def state(self) -> dict:
        """The whole state: nodes, reservations, calls."""
        return json.loads(self._state.read_text())

    def set(self, node: str, **values: str) -> None:
        """Change a node, as an administrator would."""
        state = self.state
        state["nodes"][node].update(values)
        self._state.write_text(json.dumps(state))

    def refuse(self) -> None:
        """Let every update fail."""
        self._state.write_text(json.dumps({**self.state, "refuse": True}))

    def drained(self) -> dict[str, str]:
        """Return the drained nodes with their reasons."""
        return {n: v["reason"] for n, v in self.state["nodes"].items() if "DRAIN" in v["state"]}

    def updates(self) -> list[list[str]]:
        """Return the calls that change something."""
        return [c for c in self.state["calls"] if c[1] in ("update", "create", "delete")]
