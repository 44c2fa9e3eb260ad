"""A site's folder from recorded answers: what is written, what is marked, and what differs later."""

import copy
import json
from pathlib import Path

import machines
import pytest
import yaml

from shakedown.benchmarks.planning import read_site
from shakedown.discover.ask import Answers
from shakedown.discover.draft_site import describe, differences
from shakedown.discover.folder import files, guesses, write_folder
from shakedown.discover.nics import read_table
from tests.kit.cases import cases
from tests.kit.refusal import refused

ROOT = Path(__file__).parents[3]


@pytest.fixture
def recorded(tmp_path):
    """A writer of recorded answers, which returns their file."""

    def write(document):
        file = tmp_path / "answers.json"
        file.write_text(json.dumps(document))
        return file

    return write


def two(**changes):
    """Two nodes of eight H100."""
    return machines.answers(machines.hgx("gpu1", 1), machines.hgx("gpu2", 2), **changes)


def described(document, table=None):
    """What is made of answers."""
    return describe(Answers.model_validate(document), table)


def tree(folder):
    """Every file of a folder with its content."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_the_lab_is_described_as_by_hand(shakedown, recorded, tmp_path):
    """Catches: a NIC, rail, cable, MTU or address that is made otherwise than by hand."""
    by_hand = read_site(ROOT / "inventories/lab")
    status, _, _ = shakedown(
        "discover", tmp_path / "lab", "--from", recorded(machines.lab(len(by_hand.nics)))
    )
    assert status == 0
    found = read_site(tmp_path / "lab")
    assert found.nics == by_hand.nics
    assert found.addresses == by_hand.addresses
    assert found.gpus == by_hand.gpus
    # By hand: other references, and a switch of a known system. Both are marked, or said, in the folder.
    same = {"system", "link_speed_gbps", "mtu_bytes", "ip_version", "roce", "rails", "switches"}
    mine, theirs = found.fabric.model_dump(include=same), by_hand.fabric.model_dump(include=same)
    assert mine.pop("mtu_bytes") == {**theirs.pop("mtu_bytes"), "link": 9216}  # marked
    assert mine == theirs
    assert [sorted(one.ports) for one in found.switches] == [sorted(one.ports) for one in by_hand.switches]
    marked = [
        line
        for text in tree(tmp_path / "lab").values()
        for line in text.decode().splitlines()
        if "# check" in line
    ]
    for guess in (
        "mtu_bytes: {link: 9216",
        "link_speed_gbps: 100",
        "roce:",
        "roce_switch_nos: unknown",
        "mgmt_ip",
    ):
        assert any(guess in line for line in marked), guess


@pytest.mark.slow
def test_the_lab_does_not_differ_from_its_folder(shakedown, recorded):
    """Catches: a difference that is none, so that nobody reads them."""
    nodes = len(read_site(ROOT / "inventories/lab").nics)
    status, out, err = shakedown(
        "discover", ROOT / "inventories/lab", "--from", recorded(machines.lab(nodes))
    )
    assert (status, err) == (0, "")
    assert out.startswith("no difference between")


@pytest.mark.slow
def test_a_new_site_can_be_planned_at_once(shakedown, recorded, tmp_path):
    """Catches: a folder that planning refuses, or cells of it without a floor."""
    assert shakedown("discover", tmp_path / "site", "--from", recorded(two()))[0] == 0
    status, out, err = shakedown("plan", tmp_path / "site")
    assert (status, err) == (0, "")
    assert f"Guesses: {len(guesses(tmp_path / 'site'))} lines marked `# check` still" in out
    status, out, err = shakedown("plan", tmp_path / "site", "--json")
    assert (status, err) == (0, "")
    plan = json.loads(out)
    assert {item["stage"] for item in plan["items"]} == {"node", "fabric", "collective"}
    assert plan["nodes"] == ["gpu1", "gpu2"]
    assert len(plan["rails"]) == 8


def test_a_plan_says_what_nobody_has_confirmed(recorded, shakedown, tmp_path):
    """Catches: a plan that is signed though its subnets, class or shared folder are discover's guesses."""
    site = tmp_path / "site"
    assert shakedown("discover", site, "--from", recorded(two()))[0] == 0
    marked = guesses(site)
    stated = (site / "group_vars/all/site.yml").read_text().splitlines()
    number = next(n for n, line in enumerate(stated, start=1) if "shared_stage_path" in line)
    assert f"{site}/group_vars/all/site.yml:{number}" in marked
    for path in site.rglob("*.yml"):
        path.write_text("\n".join(line.partition("# check: ")[0] for line in path.read_text().splitlines()))
    assert guesses(site) == [] == guesses(site / "hosts.yml")


def test_storage_and_management_nics_are_told_apart_and_why():
    """Catches: mlx5_1 on GPU 0's switch taken for the fabric's, or a reason that is missing."""
    node = described(two()).nodes[0]
    assert [nic.rdma_device for nic in node.nics] == [f"mlx5_{n}" for n in machines.COMPUTE]
    assert {one.nic.netdev: (one.why, one.sure) for one in node.others} == {
        "ens1np0": ("100 Gb/s, the fabric's NICs have 400", True),
        "ens2np0": ("the default route leads over it", True),
        "ens7np0": ("its nearest GPU is NODE away, 8 others share a PCIe switch with theirs", False),
    }
    assert [gpu.nearest_nic for gpu in node.gpus] == [f"mlx5_{n}" for n in machines.COMPUTE]
    assert {gpu.model for gpu in node.gpus} == {"H100-SXM"}
    text = next(file.text for file in files(described(two()), "site") if file.path == "hosts.yml")
    assert text.count("# check: not of the fabric: ens7np0 of gpu1, gpu2, ") == 1
    assert text.count("# not of the fabric: ens1np0 of gpu1, gpu2, 100 Gb/s") == 1


@cases(
    "change, why",
    ({"link_layer": "InfiniBand"}, "its port speaks InfiniBand"),
    ({"link_layer": "iWARP"}, "its port speaks iWARP"),
    ({"link_layer": "Unknown", "driver": "efa"}, "its port speaks Unknown"),
    ({"master": "bond0"}, "it is part of bond0"),
    (
        {"master": "bond0", "rdma": ["mlx5_bond_0"]},
        "a RoCE LAG (bond0), not measured: give each of its ports an address and a rail",
    ),
    ({"virtual_function": True}, "it is a virtual function"),
    ({"ipv4": []}, "it has no IPv4 address, and rails of IPv6 alone are not measured"),
    ({"ipv4": [], "up": False}, "it has no IPv4 address and no link"),
    ({"rdma": []}, "it has no RDMA device"),
)
def test_what_cannot_carry_roce_is_left_out(change, why):
    """Catches: a NIC in InfiniBand mode, of a bond or without an address that is planned."""
    document = two()
    document["nodes"]["gpu1"]["nics"][3] |= change
    site = described(document)
    left = {one.nic.netdev: one.why for one in site.nodes[0].others}
    if change != {"rdma": [], "ipv4": []}:
        assert left["ens5np0"] == why
    assert len(site.nodes[0].nics) == 7
    assert "gpu1 has 7 NICs of the fabric, most nodes have 8" in site.notes or len(site.nodes[1].nics) == 8


def with_lag(name, device, speed_mbps):
    """Two nodes whose fabric is one LAG each; the probe finds the RDMA device at the bond, as mlx5 has it."""
    made = []
    for n in (1, 2):
        ports = [machines.nic(f"ens{i}", rdma=[], master=name, speed_mbps=speed_mbps // 2) for i in (1, 2)]
        own = [machines.nic("eno1", f"192.0.2.{n}/24"), *ports]
        bond = machines.nic(name, f"10.0.0.{n}/24", rdma=[device], speed_mbps=speed_mbps, driver="")
        made.append(machines.answer(f"n{n}", [*own, bond], default=("eno1",)))
    return Answers.model_validate(machines.answers(*made))


@cases("name, device", ("bond0", "mlx5_bond_0"), ("fabric", "rocep65s0"), ("team0", "bnxt_re_bond0"))
def test_a_lag_is_left_out_by_name(name, device):
    """Catches: a bond at the sum of its ports' rates, which one queue pair never reaches, planned as a rail;
    one that is known by its ports alone; a fabric that is left out and not told."""
    site = describe(with_lag(name, device, 200000))
    assert not site.rails and not any(node.nics for node in site.nodes)
    assert any(f"{name} {device} and its like): a RoCE LAG" in note for note in site.notes)


def test_rails_without_subnets_of_their_own_are_a_guess():
    """Catches: NICs of one flat subnet, or with a subnet for each cable, that end on one rail or on none."""
    for address in ("10.0.{node}.{nic}/8", "10.{nic}.0.{link}/31"):
        document = two()
        for n, node in enumerate(document["nodes"].values(), start=1):
            for i, nic in enumerate(node["nics"][:8]):
                nic["ipv4"] = [address.format(node=n, nic=i + 1, link=2 * n)]
        site = described(document)
        assert [len(node.nics) for node in site.nodes] == [8, 8]
        assert all([nic.rail for nic in node.nics] == [f"rail{i}" for i in range(8)] for node in site.nodes)
        assert all("do not tell rails apart" in rail.guess for rail in site.rails)


def test_cabling_of_a_person_goes_before_lldp(tmp_path):
    """Catches: LLDP that overrules the table, or a contradiction that is not told."""
    file = tmp_path / "cabling.csv"
    file.write_text("\ufeffnode,netdev,leaf,leaf_port,note\ngpu1,ens0np0,leaf9,Ethernet8,x\n\n")
    heard = {"ens0np0": ("leaf0", "Ethernet0"), "ens3np0": ("leaf1.example.org", "hundredGigE 1/1")}
    site = described(machines.answers(machines.hgx("gpu1", 1, lldp=heard)), read_table(file))
    assert [(nic.leaf, nic.leaf_port) for nic in site.nodes[0].nics[:3]] == [
        ("leaf9", "Ethernet8"),
        ("leaf1", "hundredGigE 1/1"),
        (None, None),
    ]
    assert site.notes == ("gpu1 ens0np0: the cabling says leaf9 Ethernet8, LLDP says leaf0 Ethernet0",)
    assert site.leaves == ("leaf1", "leaf9")


@cases(
    "text, line, word",
    ("node,netdev,leaf\n", 1, "no column leaf_port"),
    ("node,netdev,leaf,leaf_port\ngpu1,ens0np0,leaf0\n", 2, "3 values, 4 columns"),
    ("node,netdev,leaf,leaf_port\ngpu1,{{ x }},leaf0,e1\n", 2, "is no name"),
    ("node,netdev,leaf,leaf_port\ngpu1,e0,leaf0,{% x %}\n", 2, "is no port"),
    ("node,netdev,leaf,leaf_port\ngpu1,e0,l,1\ngpu1,e0,l,2\n", 3, "is listed twice"),
    ("node,netdev,leaf,leaf_port\ngpu1,e0,l,1\ngpu2,e0,l,1\n", 3, "first on line 2"),
    ('node,netdev,leaf,leaf_port\ngpu1,"e0,l,1\n', 2, "is no CSV"),
)
def test_bad_cabling_is_refused_with_its_line(shakedown, recorded, tmp_path, text, line, word):
    """Catches: a cable that is dropped in silence, or a template that gets into the inventory."""
    file = tmp_path / "cabling.csv"
    file.write_text(text)
    status, out, err = shakedown("discover", tmp_path / "s", "--from", recorded(two()), "--cabling", file)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"cabling.csv:{line}: " in err
    assert word in err
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("row", ["gpu9,ens0np0,l,1", "gpu1,eth9,l,1"])
def test_cabling_of_what_is_not_there_is_refused(shakedown, recorded, tmp_path, row):
    """Catches: a misspelt node or NIC, whose cable would be missing from the site."""
    file = tmp_path / "cabling.csv"
    file.write_text(f"node,netdev,leaf,leaf_port\n{row}\n")
    status, _, err = shakedown("discover", tmp_path / "s", "--from", recorded(two()), "--cabling", file)
    assert status == 2
    assert "the cabling names" in err


EVIL = "{{ lookup('pipe', 'touch /tmp/owned') }}"


@cases(
    "spoil",
    lambda d: d["nodes"]["gpu1"]["nics"][0].update(netdev=EVIL),
    lambda d: d["nodes"]["gpu1"]["nics"][0].update(rdma=[EVIL]),
    lambda d: d["nodes"]["gpu1"]["nics"][0].update(ipv4=["10.0.0.300/24"]),
    lambda d: d["nodes"]["gpu1"]["nics"][0].update(master="a\nb: c"),
    lambda d: d["nodes"]["gpu1"].update(host=EVIL),
    lambda d: d["nodes"].update({EVIL: d["nodes"].pop("gpu1")}),
    lambda d: d["nodes"]["gpu1"].update(more=1),
    lambda d: d.update(addresses={"gpu1": EVIL}),
    lambda d: d.update(connections={"gpu1": {"ansible_host": EVIL}}),
    lambda d: d.update(connections={"gpu1": {"ansible_ssh_common_args": "-o ProxyCommand=x"}}),
    lambda d: d.update(submit=EVIL),
    lambda d: d.update(partition=EVIL),
    lambda d: d.update(max_time=EVIL),
    lambda d: d["nodes"]["gpu1"]["topology"]["gpus"][0].update(name=EVIL),
)
def test_hostile_answers_are_refused(shakedown, recorded, tmp_path, spoil):
    """Catches: a name from a machine that Ansible would run as a template, or that breaks the YAML."""
    document = two()
    spoil(document)
    status, out, err = shakedown("discover", tmp_path / "s", "--from", recorded(document))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "answers.json" in err
    assert not (tmp_path / "s").exists()


def test_hostile_words_are_written_as_comments_only(shakedown, recorded, tmp_path):
    """Catches: a node's own words, or its switch's name, that leave the comment or begin a template."""
    document = two(silent={"gpu3": f"\n{EVIL}\u2028x: 1"})
    document["nodes"]["gpu1"]["lldp"] = machines.heard(
        {"ens0np0": (EVIL, EVIL), "ens3np0": ("leaf0", "a\nb")}
    )
    assert shakedown("discover", tmp_path / "s", "--from", recorded(document))[0] == 0
    text = b"".join(
        content for name, content in tree(tmp_path / "s").items() if name.name != "leaf.yml"
    ).decode()
    assert "{{" not in text
    assert "{%" not in text
    hosts = yaml.safe_load((tmp_path / "s/hosts.yml").read_text())
    assert "leaf" not in hosts["compute"]["hosts"]["gpu1"]["fabric_nics"][0]


@cases("content", b"", b"{", b"[]", b'{"schema": 1, "nodes": {}}', b'{"schema": 2}', b"[" * 100000)
def test_what_is_no_answer_is_refused(shakedown, tmp_path, content):
    """Catches: an internal error, or a folder from nothing."""
    file = tmp_path / "answers.json"
    file.write_bytes(content)
    status, _, err = shakedown("discover", tmp_path / "s", "--from", file)
    assert (status, err.count("\n")) == (2, 1)
    assert "answers.json" in err
    assert "internal error" not in err


@cases(
    "words",
    ("--slurm", "a", "--from", "x"),
    ("--from", "x", "--nodes", "n1"),
    (),
    ("--from", "missing.json"),
    ("--slurm", "-x;y"),
    ("--slurm", "gpu", "--account", "a b"),
    ("--from", "missing.json", "--account", "bench"),
)
def test_bad_calls_are_one_line(shakedown, tmp_path, words):
    """Catches: two places that are asked, or a call that asks none."""
    status, out, err = shakedown("discover", tmp_path / "s", *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert not (tmp_path / "s").exists()


DIFFERENCES = [
    (
        lambda n: n["nics"][0].update(ipv4=["10.10.0.9/24"]),
        "gpu1 ens0np0: ipv4: folder 10.10.0.1, cluster 10.10.0.9",
    ),
    (
        lambda n: n["nics"][0].update(rdma=["mlx5_99"]),
        "gpu1 ens0np0: rdma_device: folder mlx5_0, cluster mlx5_99",
    ),
    (
        lambda n: n["nics"][0].update(speed_mbps=200000),
        "gpu1 ens0np0: link_speed_gbps: folder 400, cluster 200",
    ),
    (
        lambda n: n["nics"][0].update(mtu_bytes=1500),
        "gpu1 ens0np0: mtu_bytes.host: folder 9000, cluster 1500",
    ),
    (lambda n: n["nics"].pop(0), "gpu1 ens0np0: NIC: folder listed, cluster not there"),
    (lambda n: n["topology"]["gpus"].pop(), "gpu1: GPUs: folder 8, cluster 7"),
    (
        lambda n: n["nics"][8].update(speed_mbps=400000),
        "gpu1 ens1np0: NIC of the fabric: folder not listed, cluster mlx5_1, 10.20.0.1/24",
    ),
    (
        lambda n: n.update(lldp=machines.heard({"ens0np0": ("leaf0", "Ethernet99")})),
        "gpu1 ens0np0: cable: folder leaf0 Ethernet0, cluster leaf0 Ethernet99",
    ),
]


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """The answers of a site, and the site that its folder describes."""
    document = machines.answers(
        machines.hgx("gpu1", 1, lldp={"ens0np0": ("leaf0", "Ethernet0")}), machines.hgx("gpu2", 2)
    )
    folder = tmp_path_factory.mktemp("sites") / "site"
    write_folder(folder, files(described(document), "site"))
    return document, read_site(folder), folder


def told(site, document):
    """What differs, as it is printed."""
    answers = Answers.model_validate(document)
    return [str(one) for one in differences(site, describe(answers), answers)]


@pytest.mark.slow
@pytest.mark.parametrize(("change", "line"), DIFFERENCES)
def test_a_second_call_tells_what_differs(planned, change, line):
    """Catches: a swapped NIC, a moved cable or a lost GPU that the second call does not see."""
    document, site, _ = planned
    assert told(site, document) == []
    after = copy.deepcopy(document)
    change(after["nodes"]["gpu1"])
    assert line in told(site, after)


@pytest.mark.slow
def test_nodes_that_came_or_went_are_told(planned):
    """Catches: a node without an answer that counts as unchanged, and a new one that nobody hears of."""
    later = machines.answers(
        machines.hgx("gpu1", 1), machines.hgx("gpu3", 3), silent={"gpu2": "Slurm has it as DOWN"}
    )
    assert told(planned[1], later) == [
        "gpu2: node: folder listed, cluster Slurm has it as DOWN",
        "gpu3: node: folder not listed, cluster answers",
    ]


@pytest.mark.slow
def test_a_folder_that_is_there_is_compared_and_not_written(shakedown, recorded, planned):
    """Catches: a second call that writes, or whose exit status does not tell whether anything differs."""
    document, _, folder = planned
    written = tree(folder)
    after = copy.deepcopy(document)
    after["nodes"]["gpu1"]["nics"][0]["mtu_bytes"] = 1500
    status, out, _ = shakedown("discover", folder, "--from", recorded(after), "--json")
    assert status == 1
    assert json.loads(out) == [
        {"where": "gpu1 ens0np0", "what": "mtu_bytes.host", "folder": "9000", "cluster": "1500"}
    ]
    assert tree(folder) == written


def test_a_record_is_what_it_was_made_from(shakedown, recorded, tmp_path):
    """Catches: a record that loses what a folder is made from; one that is written over another."""
    kept = tmp_path / "kept.json"
    assert (
        shakedown("discover", tmp_path / "a/site", "--from", recorded(two()))[0] == 2
    )  # no such folder above
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert shakedown("discover", tmp_path / "a/site", "--from", recorded(two()), "--record", kept)[0] == 0
    assert shakedown("discover", tmp_path / "b/site", "--from", kept)[0] == 0
    assert tree(tmp_path / "a/site") == tree(tmp_path / "b/site")
    status, _, err = shakedown("discover", tmp_path / "c", "--from", kept, "--record", kept)
    assert status == 2
    assert "is there already" in err
    assert not (tmp_path / "c").exists()


def test_a_folder_that_appears_meanwhile_is_not_replaced(tmp_path):
    """Catches: a folder, even an empty one, that is written over."""
    (tmp_path / "site").mkdir()
    refused("is there already", write_folder, tmp_path / "site", files(described(two()), "site"))
    assert list(tmp_path.iterdir()) == [tmp_path / "site"]
    assert list((tmp_path / "site").iterdir()) == []
