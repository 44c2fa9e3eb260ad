"""What differs on the day of discovery: the majority is planned, and the odd node named."""

import copy
from types import SimpleNamespace

import machines
import pytest
import yaml

from shakedown.benchmarks.planning import with_absent
from shakedown.discover import ask
from shakedown.discover.ask import Answers
from shakedown.discover.draft_site import describe, differences
from shakedown.discover.folder import files, write_folder
from shakedown.intent.site import AbsentNode
from shakedown.records.base import NicSpec, Stage
from shakedown.records.plan import Plan
from shakedown.records.reading import BadInput
from shakedown.run.folder import write_plan


def three(**more):
    """Three like nodes; the third is to be spoilt."""
    return machines.answers(*(machines.hgx(f"gpu{n}", n) for n in (1, 2, 3)), **more)


def described(document):
    """The site that the answers describe."""
    return describe(Answers.model_validate(document))


def without_gpu(node, number=7):
    """Take a GPU off the bus: neither PCI nor nvidia-smi has it."""
    gone = node["topology"]["gpus"].pop(number)["bdf"]
    node["topology"]["devices"] = [one for one in node["topology"]["devices"] if one["bdf"] != gone]


def hosts_text(site):
    """What hosts.yml says."""
    return next(file.text for file in files(site, "site") if file.path == "hosts.yml")


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_gpu_that_fell_off_the_bus_is_planned_and_named(nodes):
    """Catches: seven GPUs, and the eighth's NIC left out, that become what is wanted and then pass."""
    document = three()
    if nodes == 2:
        del document["nodes"]["gpu1"]
    without_gpu(document["nodes"]["gpu3"])
    site = described(document)
    assert [len(node.gpus) for node in site.nodes] == [8] * nodes
    odd, whole = site.nodes[-1], site.nodes[0]
    assert odd.gpus == whole.gpus
    note = next(one for one in site.notes if one.startswith("Not as its fellows"))
    assert note.startswith("Not as its fellows: gpu3: nvidia-smi 7, PCI 7 of 8 GPUs")
    assert f"# check: {note[:60]}" in hosts_text(site)
    if nodes == 3:
        assert [nic.netdev for nic in odd.nics] == [nic.netdev for nic in whole.nics]
        assert "ens11np0: its nearest GPU is NODE away" in note
        assert hosts_text(site).count("# check: not as its fellows") == 1


def gone(nic):
    """A NIC that is not there at all."""
    nic.clear()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (gone, "it is not there"),
        (lambda nic: nic.update(speed_mbps=200000), "200 Gb/s, the fabric's NICs have 400"),
        (lambda nic: nic.update(link_layer="InfiniBand", ipv4=[]), "its port speaks InfiniBand"),
        (lambda nic: nic.update(rdma=[]), "it has no RDMA device"),
        (lambda nic: nic.update(ipv4=[], up=False), "it has no IPv4 address and no link"),
    ],
)
def test_a_nic_that_is_lost_on_one_node_is_planned_there(spoil, why):
    """Catches: a lost, slow or mistyped NIC that leaves its node's plan, or makes the folder one that `plan`
    refuses."""
    document = three()
    node = document["nodes"]["gpu3"]
    spoil(node["nics"][2])
    node["nics"] = [nic for nic in node["nics"] if nic]
    site = described(document)
    nic = next(nic for nic in site.nodes[2].nics if nic.netdev == "ens4np0")
    assert (nic.rail, nic.rdma_device, nic.ipv4) == ("rail2", "mlx5_4", "10.10.2.3/24")
    assert nic.guess == f"not as its fellows: {why}"
    assert [len(node.nics) for node in site.nodes] == [8, 8, 8]
    assert f"Not as its fellows: gpu3: ens4np0: {why}" in site.notes


def test_a_node_of_another_kind_is_no_broken_one():
    """Catches: GPUs and NICs that are planned for a node that never had any."""
    document = three()
    nic = machines.nic("eno1", "192.0.2.9/24")
    document["nodes"]["cpu1"] = machines.answer("cpu1", [nic], default=("eno1",))
    cpu = described(document).nodes[0]
    assert (cpu.name, cpu.nics, cpu.gpus) == ("cpu1", (), ())


def test_gpus_that_no_tool_shows_are_told():
    """Catches: a site planned without its GPUs, because Slurm hides them from the job that asked."""
    document = three(gres={"gpu1": 8, "gpu2": 8, "gpu3": 8})
    for node in document["nodes"].values():
        node["topology"]["gpus"] = []
    notes = [note for note in described(document).notes if "GPU" in note]
    assert len(notes) == 1 and notes[0].startswith("Not measured: the GPUs of 3 nodes (gpu1 and its like)")
    for node in document["nodes"].values():
        for one in node["topology"]["devices"]:
            if one["class"] == "0x030200":
                one["vendor"] = "0x1002"
    assert any("AMD's, which no benchmark here reads" in note for note in described(document).notes)


def test_slurm_is_a_witness_of_gpus():
    """Catches: a GPU that PCI and nvidia-smi lost on every node, and that Slurm lists still."""
    document = three(gres={"gpu1": 8, "gpu2": 8, "gpu3": 8})
    for node in document["nodes"].values():
        without_gpu(node)
    notes = described(document).notes
    assert "Not as its fellows: gpu1: nvidia-smi 7, PCI 7, Slurm 8 of 8 GPUs" in " ".join(notes)


def test_what_is_lost_still_differs_from_the_folder():
    """Catches: a second call that finds no difference, because it plans the lost GPU too."""
    document = three()
    site = described(document)
    spoilt = copy.deepcopy(document)
    without_gpu(spoilt["nodes"]["gpu3"])
    answers = Answers.model_validate(spoilt)
    keys = ("rail", "netdev", "rdma_device", "leaf", "leaf_port")
    nics = {
        node.name: [
            NicSpec(**{key: getattr(nic, key) for key in keys}, ipv4=nic.ipv4.split("/")[0])
            for nic in node.nics
        ]
        for node in site.nodes
    }
    folder = SimpleNamespace(fabric=None, tcp_nics={}, gpus=dict.fromkeys(nics, 8), nics=nics)
    folder.absent_nodes = {}
    told = [str(one) for one in differences(folder, describe(answers), answers)]
    assert told == ["gpu3: GPUs: folder 8, cluster 7"]


@pytest.mark.parametrize(("by", "outcome"), [(None, "NOT-RUN"), ("J. Doe, ticket 7", "PASS")])
def test_a_node_that_did_not_answer_keeps_the_site_from_passing(shakedown, tmp_path, by, outcome):
    """Catches: a site that passes without a node that was down at discovery; one that is taken out untold."""
    document = three(silent={"gpu4": "DOWN: NVSwitch fatal"})
    own = {file.path: yaml.safe_load(file.text) for file in files(described(document), "site")}
    absent = own["group_vars/all/site.yml"]["absent_nodes"]
    assert absent == {"gpu4": {"why": "DOWN: NVSwitch fatal"}}
    run = tmp_path / "run"
    assert shakedown("simulate", run, "--nodes", "4", "--rails", "1")[0] == 0
    plan = Plan.model_validate_json((run / "plan.json").read_text())
    left = {name: AbsentNode(**one, taken_out_by=by) for name, one in absent.items()}
    write_plan(run, with_absent(plan, left))
    said = shakedown("verdict", run)[1]
    assert said.splitlines()[0].startswith(outcome)
    assert "gpu4" in (run / "plan.json").read_text()
    assert not with_absent(plan, left, (Stage.FABRIC,)).items[len(plan.items) :]


def test_what_is_alike_on_all_nodes_is_said_once():
    """Catches: a mark on every node for the same guess, so that nobody reads the one that matters."""
    text = hosts_text(described(three()))
    assert text.count("not of the fabric: ens1np0") == text.count("mgmt_ip of 3 nodes") == 1
    assert text.count("# check") == 3


def test_a_bond_or_infiniband_is_told_with_its_reason():
    """Catches: a cluster of bonds or InfiniBand of which the folder says only that it has no fabric."""
    document = three()
    for node in document["nodes"].values():
        for nic in node["nics"]:
            nic["link_layer"] = "InfiniBand"
    assert (
        "Not measured: 33 RDMA NICs (gpu1 ens0np0 mlx5_0 and its like): its port speaks InfiniBand"
        in described(document).notes
    )


def test_the_job_asks_for_the_gpus_that_slurm_lists(monkeypatch):
    """Catches: a job that sees no GPU where Slurm constrains devices; one that is not run because they are
    taken."""
    tried = []

    def run(partition, nodes, options):
        tried.append(options)
        if len(tried) == 1:
            raise BadInput("srun: they are taken", fix="wait")
        return "text"

    monkeypatch.setattr(ask, "_run", run)
    assert ask._run_with_gpus("gpu", ["gpu1"], ["--qos=x"], 8) == "text"
    assert tried == [["--qos=x", "--gres=gpu:8"], ["--qos=x"]]
    tried.clear()
    tried.append(None)
    ask._run_with_gpus("gpu", ["gpu1"], ["--gres=gpu:h100:2"], 8)
    ask._run_with_gpus("gpu", ["gpu1"], [], 0)
    assert tried[1:] == [["--gres=gpu:h100:2"], []]
    assert [
        sum(map(int, ask._GPUS.findall(text)))
        for text in ("gpu:h100:8(S:0-1)", "gpu:4,nvme:2", "gpu:a:2(S:0),gpu:b:2", "(null)", "gpu:" + "9" * 9)
    ] == [8, 4, 4, 0, 0]


@pytest.mark.slow
def test_the_plan_names_the_odd_node_and_a_cell_waits_for_it(shakedown, tmp_path):
    """Catches: a plan that says nothing of the node that differs, or that has no cell which its lost GPU and
    NIC fail."""
    document = three(silent={"gpu4": "Slurm has it as DOWN"})
    without_gpu(document["nodes"]["gpu3"])
    write_folder(tmp_path / "site", files(described(document), "site"))
    words = ("--stage", "node,fabric", "--output", tmp_path / "run")
    status, out, err = shakedown("plan", tmp_path / "site", *words)
    assert status == 0, err
    assert "node gpu4: did not answer: Slurm has it as DOWN [absent_nodes]" in out
    assert "Not as its fellows: gpu3: nvidia-smi 7, PCI 7 of 8 GPUs; ens11np0" in out
    jobs = (tmp_path / "run/jobs.json").read_text()
    assert '"gpu3": 8' in " ".join(jobs.split())
