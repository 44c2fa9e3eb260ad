"""The role itself, driven by Ansible on four recorded hosts at once: one for each kind of NIC and driver."""

import copy
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import fake_host
import pytest
import yaml
from conftest import HERE, ROCE, ROLE

from lab.acceptance import mitogen
from tests.kit.run import ran

pytestmark = pytest.mark.slow

REPOSITORY = ROLE.parents[1]
# host: (NIC, RDMA device, Gb/s, the pattern that no two hosts share)
HOSTS = {"a1": ("connectx7_inbox", "mlx5_0", 400), "a2": ("connectx6_vendor", "mlx5_0", 200)}
HOSTS |= {"b1": ("bcm57608_inbox", "bnxt_re0", 400), "b2": ("bcm57508_vendor", "bnxt_re0", 200)}
FABRIC: dict[str, Any] = {
    "system": "recorded",
    "link_speed_gbps": "{{ speed }}",
    "mtu_bytes": {"link": 9216, "host": 9000, "rdma": 4096},
    "ip_version": 4,
    # A copy, as each site has of the whole: tests here change what is deep inside.
    "roce": {**copy.deepcopy(ROCE), "ecn": {"min_bytes": 1048576, "max_bytes": 2097152, "mark_percent": 5}},
    "rails": [{"name": "rail0", "subnet": "10.20.3.0/24"}],
    "switches": {"leaves": ["leaf0"], "spines": [], "uplinks_per_leaf_per_spine": 0},
}
BACK = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.include_role": {"name": "roce_host", "tasks_from": "rollback"}}],
    }
]
PLAY = [{"hosts": "all", "gather_facts": False, "roles": ["roce_host"]}]
COUNTS = re.compile(r"^(\w+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=0\s+failed=(\d)", re.M)


class Site:
    """An inventory of recorded hosts and the tools for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fakes = {}
        tools = folder / "bin"
        tools.mkdir()
        for tool in ("ip", "rdma", "ibv_devinfo", "modprobe", "mlxconfig", "ethtool", "dcb"):
            (tools / tool).write_text(
                f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(HERE)!r})\n"
                "import fake_host\nsys.exit(fake_host.main())\n"
            )
            (tools / tool).chmod(0o755)
        hosts = {}
        for number, (host, (nic, device, speed)) in enumerate(HOSTS.items(), start=1):
            self.fakes[host] = fake_host.make(folder / host, HERE / "nics" / f"{nic}.yaml", number)
            fake_host.save(self.fakes[host])
            hosts[host] = {
                "speed": speed,
                "host_settings_root": str(folder / host),
                "fabric_nics": [
                    {
                        "rail": "rail0",
                        "netdev": "eth2",
                        "rdma_device": device,
                        "ipv4": f"10.20.3.{number}/24",
                        "leaf": "leaf0",
                        "leaf_port": f"swp{number}",
                    }
                ],
            }
        common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        common |= {"fabric": copy.deepcopy(FABRIC), "host_settings_settle_s": 0}
        self.inventory = folder / "hosts.yml"
        self.variables = {"all": {"hosts": hosts, "vars": common}}
        self.write()
        (folder / "play.yml").write_text(yaml.safe_dump(PLAY))
        (folder / "back.yml").write_text(yaml.safe_dump(BACK))

    def write(self) -> None:
        """Write the inventory as it is now."""
        self.inventory.write_text(yaml.safe_dump(self.variables))

    def play(self, *options: str, book: str = "play") -> tuple[str, dict[str, tuple[int, int]]]:
        """Run a play: its output, and changed and failed tasks by host."""
        environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(self.folder)}
        environment |= {"ANSIBLE_ROLES_PATH": str(REPOSITORY / "roles"), "ANSIBLE_NOCOLOR": "1"}
        environment |= {"ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"}
        environment |= mitogen()  # at half the processor time
        environment |= {"HOST_SETTINGS_PATH": str(self.folder / "bin"), "LC_ALL": "C.UTF-8"}
        done = ran(
            "ansible-playbook",
            "-i",
            self.inventory,
            self.folder / f"{book}.yml",
            *options,
            cwd=self.folder,
            env=environment,
            timeout=240,
        )
        text = done.stdout + done.stderr
        counts = {host: (int(changed), int(failed)) for host, changed, failed in COUNTS.findall(text)}
        return text, counts

    def log(self, host: str) -> list[str]:
        """Changing calls on a host so far."""
        file = self.folder / host / fake_host.LOG
        return [" ".join(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []

    def files(self) -> dict[str, str]:
        """What every host's files say, the program and its units aside; numbers as they are written.

        The kernel prints some in base 16, and the vendor's mlx5 driver its class with words before it.
        """
        trees = [p for host in HOSTS for p in (self.folder / host).rglob("*") if p.is_file()]
        skipped = (fake_host.STATE, fake_host.LOG, "apply")  # the last one is a trigger, not a value
        kept = [p for p in trees if p.name not in skipped and not {"libexec", "system"} & set(p.parts)]
        texts = {str(p): p.read_text().strip().removeprefix("Global tclass=") for p in kept}
        return {path: str(int(t, 16)) if t.startswith("0x") else t for path, t in texts.items()}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Four recorded hosts."""
    return Site(tmp_path)


def test_role_on_recorded_hosts(site):
    """Catches a check mode that changes or lies, a read-back that does not name host, setting, value found
    and wanted, one bad host that stops the others, and a second run that changes anything."""
    before = site.files()
    text, counts = site.play("--check", "--diff")
    assert counts == dict.fromkeys(HOSTS, (1, 0)), text
    assert site.files() == before
    assert not any(site.log(host) for host in HOSTS)
    assert len(text.splitlines()) < 100 * len(HOSTS), "sources of programs hide the settings"
    assert "class Setting" not in text
    assert text.count("files of Shakedown in /usr/local/libexec/shakedown, /etc/systemd/system/host-") == len(
        HOSTS
    )
    assert re.search(r"^-rdma_cm.default_roce_tos: 0$", text, re.M), text
    assert re.search(r"^\+rdma_cm.default_roce_tos: 106$", text, re.M)

    # A link that trained at a quarter of its rate on one host.
    site.fakes["b1"].write("/sys/class/net/eth2/speed", "100000")
    text, counts = site.play()
    assert counts == {"a1": (1, 0), "a2": (1, 0), "b1": (1, 1), "b2": (1, 0)}, text
    failure = text.partition("fatal: [b1]")[2].partition("\nTASK ")[0]
    assert "eth2 link.speed_gbps: found 100.0, wanted 400.0" in failure, text
    assert "dcb pfc set dev eth2 prio-pfc all:off 3:on" in site.log("a1")
    assert (site.folder / "a1/etc/shakedown/roce.env").read_text().count("=106\n") == 3
    # What the units start is where the program was put, and udev starts one for the NIC.
    units = [p.read_text() for p in (site.folder / "a1/etc/systemd/system").glob("*.service")]
    started = {program for unit in units for program in re.findall(r"^ExecStart=/(\S+)", unit, re.M)}
    assert len(started) == 1, units
    assert os.access(site.folder / "a1" / started.pop(), os.X_OK)
    rules = (site.folder / "a1/etc/udev/rules.d/90-host-settings.rules").read_text()
    assert 'KERNEL=="eth2", TAG+="systemd", ENV{SYSTEMD_WANTS}+="host-settings@eth2.service"\n' in rules

    site.fakes["b1"].write("/sys/class/net/eth2/speed", "400000")
    calls = {host: site.log(host) for host in HOSTS}
    text, counts = site.play()
    assert counts == dict.fromkeys(HOSTS, (0, 0)), text
    assert {host: site.log(host) for host in HOSTS} == calls

    # The way back leaves the program and nothing else.
    text, counts = site.play(book="back")
    assert counts == dict.fromkeys(HOSTS, (1, 0)), text
    assert site.files() == before


# What playbooks/site.yml does of hosts before and when it changes them, without who connects.
SITE_PLAYS = [
    play
    for play in yaml.safe_load((REPOSITORY / "playbooks/site.yml").read_text())
    if play["name"] in ("What the hosts' settings are", "Before the first change", "Hosts of the fabric")
]
MAP = (REPOSITORY / "tests/unit/topology/h200_vm.json").read_text()


def test_one_table_and_every_refusal_come_before_the_first_change(site):
    """Catches: a host that numa_pinning stops after its RoCE was changed; a table without setting, value
    found, wanted or owner; a look that changes something; a drift of ours told as the site's."""
    everything = site.variables["all"]
    everything["children"] = {
        name: {"hosts": dict.fromkeys(HOSTS)} for name in ("compute", "slurm", "switches")
    }
    everything["children"]["switches"] = {"hosts": {}}
    everything["vars"] |= {"host_settings_topology": MAP, "mgmt_subnet": "192.0.2.0/24"}
    site.write()
    (site.folder / "site.yml").write_text(yaml.safe_dump(SITE_PLAYS))
    before = site.files()
    text, counts = site.play(book="site")
    assert "no NIC with an RDMA device" in text, text
    assert all(failed for _, failed in counts.values()), text
    assert site.files() == before
    assert not any(site.log(host) for host in HOSTS)

    looks = [{**SITE_PLAYS[0], "tasks": copy.deepcopy(SITE_PLAYS[0]["tasks"])}, SITE_PLAYS[1]]
    looks[0]["tasks"][0]["loop"] = [{"role": role, "there": True} for role in ("openmpi", "roce_host")]
    (site.folder / "looks.yml").write_text(yaml.safe_dump(looks))
    text, counts = site.play("--diff", book="looks")
    assert {failed for _, failed in counts.values()} == {0}, text
    assert site.files() == before
    assert "/etc/shakedown/mpi.env" in text, text
    looks[0]["tasks"][0]["loop"] = [{"role": "roce_host", "there": True}]
    (site.folder / "looks.yml").write_text(yaml.safe_dump(looks))
    table = [
        line.strip("- '\"") for line in text.splitlines() if "  the site's" in line or "Shakedown's" in line
    ]
    tos = [line for line in table if "rdma_cm.default_roce_tos" in line]
    assert sorted(re.split(r"  +", line)[2:] for line in tos) == [["0", "106", "the site's"]] * len(tos), text
    assert "class Setting" not in text

    site.play()
    text, _ = site.play(book="looks")
    assert "nothing: every setting is as wanted" in text, text
    site.fakes["a1"].write("/sys/class/net/eth2/mtu", "1500")
    text, _ = site.play(book="looks")
    (line,) = [line for line in text.splitlines() if "Shakedown's, changed since" in line]
    assert re.search(r"a1 +eth2 \S*mtu\S* +1500 +9000 +Shakedown's, changed since", line), text


def test_a_host_whose_settings_changed_is_mapped_again(site):
    """Catches: the rank file of a new host made from the map of before its NICs had RDMA devices, so that the
    first convergence leaves it empty and the second one writes it."""
    mapped = {"ansible.builtin.set_fact": {"host_settings_topology": "of before"}}
    said = {"ansible.builtin.debug": {"msg": "the map is '{{ host_settings_topology }}'"}}
    role = {"ansible.builtin.include_role": {"name": "roce_host"}}
    play = {"hosts": "all", "gather_facts": False, "tasks": [mapped, role, said]}
    (site.folder / "mapped.yml").write_text(yaml.safe_dump([play]))
    text, _ = site.play(book="mapped")
    assert text.count("the map is ''") == len(HOSTS), text
    text, _ = site.play(book="mapped")
    assert text.count("the map is 'of before'") == len(HOSTS), text


def test_bad_inventory_is_refused_before_the_first_change(site):
    """Catches an intent or a NIC that is wrong and is noticed only on the way, on every host its own."""
    nics = {host: data["fabric_nics"][0] for host, data in site.variables["all"]["hosts"].items()}
    nics["a2"]["rail"] = "rail7"
    nics["b1"]["leaf_port"] = nics["b2"]["leaf_port"]
    site.write()
    before = site.files()
    text, counts = site.play()
    assert sum(failed for _, failed in counts.values()) == 1, text  # asked once, and nobody goes on
    assert "a2: fabric_nics: rail rail7 is none of fabric.rails (rail0) -- correct rail" in text
    assert "b1: fabric_nics: eth2 shares leaf0 port swp4 with another NIC -- correct leaf_port" in text
    assert site.files() == before

    # What only a host knows is refused by that host.
    nics["a2"]["rail"], nics["b1"]["leaf_port"] = "rail0", "swp3"
    for nic in nics.values():
        nic["netdev"] = "eth9"
    site.write()
    text, counts = site.play()
    assert {host: failed for host, (_, failed) in counts.items()} == dict.fromkeys(HOSTS, 1), text
    assert "there is no NIC 'eth9'; this host has eth2" in text
    assert site.files() == before
    for nic in nics.values():
        nic["netdev"] = "eth2"

    site.variables["all"]["vars"]["fabric"]["roce"]["cnp"]["dscp"] = [48, 56]
    site.write()
    text, counts = site.play()
    assert {host: failed for host, (_, failed) in counts.items()} == dict.fromkeys(HOSTS, 1), text
    assert "dscp" in text
    assert site.files() == before
