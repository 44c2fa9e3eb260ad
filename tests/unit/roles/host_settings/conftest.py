"""The program under test, a host to run it on, and a desired state."""

import copy
import json
from pathlib import Path
from typing import Any

import fake_host
import pytest
from host_settings import engine, system, targets

from tests.kit.site import roce

HERE = Path(__file__).resolve().parent
ROLE = HERE.parents[3] / "roles" / "host_settings"

ROCE: dict[str, Any] = roce(
    ect=True,
    cnp={"dscp": 48, "priority": 6, "traffic_class": 6, "queue": 6, "scheduler": "strict"},
    ecn=None,
    headroom={"cable_m": 40},
)
NIC: dict[str, Any] = {"schema": 1, "netdev": "eth2", "rail": "rail0", "rdma_device": "mlx5_0"}
NIC |= {"ipv4": "10.20.3.7/24", "link_speed_gbps": 400}
NIC |= {"mtu_bytes": {"link": 9216, "host": 9000, "rdma": 4096}, "roce": ROCE}
NIC |= {"policy": {"arp_ignore": 2, "arp_announce": 1, "ets_roce_percent": 50, "rings": "max"}}


class FakeSystem(system.System):
    """The program's view of a fake host, with the tools in process."""

    def __init__(self, fake: fake_host.Fake) -> None:
        super().__init__(str(fake.root))
        self.fake = fake
        self.written: list[str] = []

    def run(self, *argv: str) -> system.Done:
        """Ask the fake."""
        answer = self.fake.run(list(argv))
        return system.Done(answer.status, answer.out, answer.err)

    def clock(self) -> str:
        """The fake's clock."""
        return str(self.fake.state.get("clock", "free"))

    def has_tool(self, name: str) -> bool:
        """Only a host whose description has firmware parameters has the tool for them."""
        return name != "mlxconfig" or "firmware" in self.fake.state

    def _write_attribute(self, path: str, text: str) -> None:
        super()._write_attribute(path, text)
        self.written.append(f"{path}={text}")
        if path.endswith("/np_cnp_prio"):  # kernel cong.c: a fixed priority forces mode 0
            self.fake.write(f"{path}_mode", "0")


class Host:
    """One fake host and the verbs of the program."""

    def __init__(self, root: Path, nic: str, base: dict[str, Any] = NIC, **changes: Any) -> None:
        self.fake = fake_host.make(root / "root", HERE / "nics" / f"{nic}.yaml")
        self.system = FakeSystem(self.fake)
        self.desired = copy.deepcopy(base) | changes
        self.folder = root / "desired"
        self.folder.mkdir()

    def __call__(self, action: str) -> dict[str, Any]:
        """Run one action of the program: its report."""
        name = self.desired.get("netdev") or self.desired["target"]
        (self.folder / f"{name}.json").write_text(json.dumps(self.desired))
        target = targets.load_target(self.system, name, self.folder)
        return {"apply": engine.apply, "check": engine.check, "rollback": engine.rollback}[action](
            self.system, target
        )

    @property
    def done(self) -> list[str]:
        """All changing calls so far, as words."""
        return [" ".join(argv) for argv in self.fake.log]


@pytest.fixture
def host(tmp_path: Path) -> Any:
    """Make a host: host("connectx7_inbox", rdma_device="mlx5_0")."""
    return lambda nic, **changes: Host(tmp_path, nic, **changes)


@pytest.fixture
def fake_system() -> Any:
    """Give a fake host to the program."""
    return FakeSystem
