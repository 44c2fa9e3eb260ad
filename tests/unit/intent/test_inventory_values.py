"""Inventories as sites write them: values are templates, and planning must see what Ansible's tasks see."""

import re
from pathlib import Path

import pytest
import yaml

from shakedown.benchmarks.planning import read_site
from shakedown.records.errors import BadInput
from tests.kit.site import lab_fabric

HOSTS = """\
compute:
  hosts:
    n[1:2]:
  vars:
    number: "{{ inventory_hostname | regex_search('[0-9]+') }}"
    ansible_host: 10.20.0.{{ number }}
    mgmt_ip: "{{ ansible_host }}"
    gpus: "{{ [{'index': 0}] * gpus_per_node }}"
    gpus_per_node: 0
    never_read: "{{ lookup('ansible.builtin.pipe', 'touch ' ~ inventory_dir ~ '/ran') }}"
    fabric_nics:
      - {rail: rail0, netdev: fab0, rdma_device: rxe0, ipv4: "10.10.0.{{ number }}/24", leaf: leaf0, leaf_port: "swp{{ number }}"}
switches:
  hosts:
    leaf0:
"""  # noqa: E501
CABLES = """\
roce_switch_nos: "{{ 'li' ~ 'nux' }}"
leaf_ports: >-
  {%- set ports = [] -%}
  {%- for host in groups['compute'] -%}
  {%- for nic in hostvars[host].fabric_nics if nic.leaf == inventory_hostname -%}
  {%- set _ = ports.append({'port': nic.leaf_port, 'host': host, 'netdev': nic.netdev, 'rail': nic.rail}) -%}
  {%- endfor -%}
  {%- endfor -%}
  {{ ports }}
"""
FABRIC = lab_fabric(
    1, link_speed_gbps="{{ 20 + 5 }}", mtu_bytes={"link": 9000, "host": "{{ fabric_mtu }}", "rdma": 4096}
)


@pytest.fixture
def inventory(tmp_path):
    """Write an inventory; `more` goes over the variables of all hosts."""

    def write(**more: object):
        (tmp_path / "group_vars").mkdir()
        (tmp_path / "hosts.yml").write_text(HOSTS)
        (tmp_path / "group_vars" / "switches.yml").write_text(CABLES)
        common = {"fabric": FABRIC, "fabric_mtu": 9000, "acceptance": {"scope": {"gpu": "{{ 'A' ~ 100 }}"}}}
        (tmp_path / "group_vars" / "all.yml").write_text(yaml.safe_dump({**common, **more}))
        return tmp_path

    return write


def test_templates_are_read_as_ansible_reads_them(inventory):
    """Catches: text in braces taken for a value, another host's variables, and lookups that nobody needs."""
    folder = inventory()
    site = read_site(folder)
    assert site.network().link_speed_gbps == 25 and site.network().mtu_bytes.host == 9000
    assert site.addresses == {"n1": "10.20.0.1", "n2": "10.20.0.2"}
    assert [site.nics[node][0].ipv4 for node in ("n1", "n2")] == ["10.10.0.1", "10.10.0.2"]
    assert site.switches[0].nos == "linux"
    assert site.switches[0].ports == (("swp1", "n1", "fab0", "rail0"), ("swp2", "n2", "fab0", "rail0"))
    assert site.acceptance.scope == {"gpu": "A100"}
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"fabric_mtu": "{{ ansible_mtu }}"}, r"fabric of n1 has no value: .*ansible_mtu.* is undefined"),
        ({"acceptance": "{{ 5 // 0 }}"}, "acceptance of n1 has no value: .*zero"),
        ({"acceptance": {"scope": {"gpu": "{% raw %}{{ x }}{% endraw %}"}}}, "acceptance of n1 .*leaves as"),
    ],
)
def test_a_value_that_cannot_be_had_is_named(inventory, more, says):
    """Catches: a traceback, or a plan from half a template."""
    with pytest.raises(BadInput, match=says) as refused:
        read_site(inventory(**more))
    assert "\n" not in str(refused.value)


def test_an_inventory_that_ansible_refuses_is_named(inventory):
    """Catches: a traceback, or the last line of Ansible's drawing of the place instead of what is wrong."""
    folder = inventory()
    (folder / "group_vars" / "switches.yml").write_text("---\nroce_switch_nos: [\n")
    with pytest.raises(BadInput, match=r"switches\.yml:3: is no YAML: expected") as refused:
        read_site(folder)
    assert "\n" not in str(refused.value)


def test_a_waivers_last_day_is_written_as_the_page_has_it(inventory):
    """Catches: a day without quotes, as YAML and the how-to have it, refused in Ansible's words."""
    folder = inventory()
    page = (Path(__file__).parents[3] / "docs/how-to/part-of-a-site.md").read_text()
    block = next(b for b in page.split("```") if "expires: " in b)
    assert re.search(r"expires: \d{4}-\d\d-\d\d", block)
    (folder / "group_vars/compute.yml").write_text(block.removeprefix("yaml"))
    assert str(read_site(folder).waivers[0].expires) == "2026-03-01"
