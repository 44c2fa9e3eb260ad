"""The errata of publications worked out, and the shipped profiles against each other and physics."""

import ast
import ipaddress
import json
import operator
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from scipy.stats import nct, norm

from shakedown.benchmarks.planning import read_site
from shakedown.judge.cells import POSSIBLE
from shakedown.physics import host_links
from shakedown.references import files as references_io
from shakedown.references.catalogue import Catalogue, MissingReference, all_missing
from shakedown.references.files import load_profile, profile_names
from shakedown.references.propose import scope_key
from tests.kit.cases import cases

OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
ERRATA = [(name, one) for name in profile_names() for one in load_profile(name).errata]


def worked_out(text):
    """The value of plain arithmetic; anything else is refused."""

    def value(node):
        match node:
            case ast.Expression(body=inner):
                return value(inner)
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.BinOp(left=left, op=op, right=right):
                return OPERATIONS[type(op)](value(left), value(right))
        raise AssertionError(f"{text}: numbers, + - * / and brackets only")

    return value(ast.parse(text, mode="eval"))


@pytest.mark.parametrize(("name", "erratum"), ERRATA, ids=lambda part: getattr(part, "where", part))
def test_the_arithmetic_gives_what_is_called_right(name, erratum):
    """Catches: an erratum whose own figure is mistyped, or that calls wrong what is right."""
    right = worked_out(erratum.arithmetic)
    assert erratum.right == pytest.approx(right, rel=0.005)
    printed = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", erratum.printed)]
    assert printed, "printed must hold the wrong figure"
    assert all(abs(number - right) > 0.005 * right for number in printed)


def test_all_errata_are_found():
    """Catches: a key that is read no more, with which all tests above would vanish."""
    assert len({name for name, _ in ERRATA}) >= 2


def test_more_than_arithmetic_is_refused():
    """Catches: an errata line that calls something, which a reader could not check by hand."""
    with pytest.raises(AssertionError):
        worked_out("max(1, 2)")


def missing(test: str) -> MissingReference:
    """A cell that no entry fits."""
    return MissingReference.of(test, "busbw", {"gpu": "L40", "nodes": 1}, fix="add one to the profile")


def test_a_site_that_misses_everything_gets_a_line_that_can_be_read():
    """Catches: a refusal of 8,000 characters where a node's GPUs were left out, or a rest without names."""
    thirty = [missing(f"nccl_{number}") for number in range(30)]
    said = str(all_missing(thirty))
    assert said.startswith(
        "30 cells have no reference: nccl_0 busbw gpu=L40 nodes=1: add one to the profile; "
    )
    assert "; and 25 more of nccl_5, nccl_6, " in said
    assert ", nccl_29 (shakedown plan --learn lists all)" in said
    assert said.count("add one to the profile") == 5
    assert "--learn" not in str(all_missing(thirty, learn=True))


def test_five_kinds_are_told_in_full():
    """Catches: `and 0 more`, or the fifth left out."""
    said = str(all_missing([missing(f"nccl_{number}") for number in range(5)]))
    assert "more of" not in said
    assert said.count("add one to the profile") == 5


INVENTORIES = Path(__file__).parents[3] / "inventories"
WITH_FABRIC = ("tolly_xe9680_z9664f", "pt_r7615_bcm57508", "ml_engineering")


def read(name, path):
    """One YAML file of an inventory."""
    return yaml.safe_load((INVENTORIES / name / path).read_text())


@pytest.mark.parametrize("name", WITH_FABRIC)
def test_intent_agrees_with_the_profile(name):
    """A speed or MTU that differs gives ceilings that the hardware never had."""
    intent = read(name, "group_vars/all/fabric.yml")["fabric"]
    profile = references_io.load_profile(intent["profile"])
    assert intent["system"] == intent["profile"] == name
    assert intent["mtu_bytes"]["rdma"] == 4096
    facts = profile.fabric
    if facts is None:  # a study of single nodes; its fabric is an example
        return
    assert facts.link_speed_gbps == intent["link_speed_gbps"]
    assert facts.rdma_mtu_bytes == intent["mtu_bytes"]["rdma"]
    assert facts.ip_version == intent["ip_version"]
    assert facts.rails == len(intent["rails"])
    assert facts.leaves == len(intent["switches"]["leaves"])
    assert facts.spines == len(intent["switches"]["spines"])
    assert facts.uplinks_per_leaf_per_spine == intent["switches"]["uplinks_per_leaf_per_spine"]
    hosts = read(name, "hosts.yml")["compute"]["hosts"]
    assert profile.hardware.nodes == len(hosts)
    for host in hosts.values():
        assert len(host["fabric_nics"]) == profile.hardware.nics_per_node
        assert [gpu["model"] for gpu in host["gpus"]] == [
            profile.hardware.gpu
        ] * profile.hardware.gpus_per_node


@pytest.mark.parametrize("name", WITH_FABRIC)
def test_cabling(name):
    """Two NICs in one port, an address outside its rail, a GPU near a NIC that is not there."""
    intent = read(name, "group_vars/all/fabric.yml")["fabric"]
    groups = read(name, "hosts.yml")
    subnets = {rail["name"]: ipaddress.ip_network(rail["subnet"]) for rail in intent["rails"]}
    ports, addresses = Counter(), Counter()
    for host in groups["compute"]["hosts"].values():
        assert [nic["rail"] for nic in host["fabric_nics"]] == list(subnets)
        for nic in host["fabric_nics"]:
            interface = ipaddress.ip_interface(nic["ipv4"])
            assert interface.network == subnets[nic["rail"]]
            assert nic["leaf"] in intent["switches"]["leaves"]
            ports[nic["leaf"], nic["leaf_port"]] += 1
            addresses[interface.ip] += 1
        devices = {nic["rdma_device"] for nic in host["fabric_nics"]}
        assert {gpu["nearest_nic"] for gpu in host["gpus"]} <= devices
        assert [gpu["index"] for gpu in host["gpus"]] == list(range(len(host["gpus"])))
    assert max(ports.values()) == max(addresses.values()) == 1
    assert sorted(groups["leaf"]["hosts"]) == sorted(intent["switches"]["leaves"])
    assert sorted(groups.get("spine", {}).get("hosts", {})) == sorted(intent["switches"]["spines"])


@pytest.mark.parametrize("name", WITH_FABRIC)
def test_every_switch_has_the_ports_of_its_cables(name):
    """Catches: a switch that its role refuses for want of ports, or a port that nobody cabled."""
    site = read_site(INVENTORIES / name)
    cabled = {
        (nic.leaf, nic.leaf_port, node, nic.netdev, nic.rail)
        for node, nics in site.nics.items()
        for nic in nics
    }
    assert {(switch.name, *port) for switch in site.switches for port in switch.ports} == cabled
    assert all(switch.ports or switch.uplinks for switch in site.switches)


def test_tollys_plan_has_its_spines_and_every_uplink():
    """Catches the published fabric passed by its host ports alone: 64 uplinks and two spines unread."""
    site = read_site(INVENTORIES / "tolly_xe9680_z9664f")
    counted = {switch.name: len(switch.uplinks) for switch in site.switches}
    assert counted == {**{f"leaf{i}": 8 for i in range(8)}, "spine0": 32, "spine1": 32}


def test_tolly_is_rail_optimised():
    """NIC i of every node on leaf i: a host on the wrong leaf would send same-rail traffic over the spine."""
    for host in read("tolly_xe9680_z9664f", "hosts.yml")["compute"]["hosts"].values():
        for nic in host["fabric_nics"]:
            assert nic["leaf"].removeprefix("leaf") == nic["rail"].removeprefix("rail")


def test_primergy_paths_have_references():
    """A host whose path no reference knows would have nothing to be held to."""
    profile = references_io.load_profile("primergy_cdi")
    known = {
        (e.scope["gpu"], e.scope["pcie_generation"], e.scope["path"], e.scope["gpus"])
        for e in profile.entries
        if e.metric == "data_rate" and e.gates
    }
    for host in read("primergy_cdi", "hosts.yml")["compute"]["hosts"].values():
        gpus = host["gpus"]
        first = gpus[0]
        assert all(gpu | {"index": 0} == first for gpu in gpus)
        assert (first["model"], first["pcie_generation"], first["path"], len(gpus)) in known


def test_every_address_is_a_documentation_address_or_private():
    """An example that names somebody's real machine would be configured by whoever copies it."""
    for name in (*WITH_FABRIC, "primergy_cdi", "ml_engineering_h100"):
        for group in read(name, "hosts.yml").values():
            for host in (group.get("hosts") or {}).values():
                assert ipaddress.ip_address(host["ansible_host"]) in ipaddress.ip_network("192.0.2.0/24")


IMAGE_BYTES = 150_528
FOUR = ("tolly_xe9680_z9664f", "pt_r7615_bcm57508", "primergy_cdi", "ml_engineering")


@pytest.fixture(scope="module")
def profiles():
    """All shipped profiles by name."""
    return {name: references_io.load_profile(name) for name in references_io.profile_names()}


def values(profile, test, metric):
    """The values of one metric by scope."""
    return {
        scope_key(e.scope): e.reference().value
        for e in profile.entries
        if (e.test, e.metric) == (test, metric)
    }


def test_every_shipped_profile_loads_into_one_catalogue(profiles):
    """Names that clash between profiles would refuse a site that uses two of them."""
    assert set(FOUR) <= set(profiles)
    assert len(Catalogue(profiles.values()).entries) == sum(len(p.entries) for p in profiles.values())


def test_tolly(profiles):
    """Share of the ceilings, and the rates that follow from the time and the steps."""
    entries = {e.id: e.reference() for e in profiles["tolly_xe9680_z9664f"].entries}
    read, ring = entries["tolly-ib-read-bw"], entries["tolly-all-reduce-16g"]
    assert 100 * read.value / read.ceiling == pytest.approx(99.69, abs=0.005)
    assert 100 * ring.value / ring.ceiling == pytest.approx(99.4, abs=0.05)
    assert ring.gate / ring.ceiling == pytest.approx(0.95, abs=0.002)
    # The gate of perftest must fail an RDMA MTU of 2048, which carries 384.60 Gb/s.
    assert read.gate > 384.60
    step_s = entries["tolly-lora-duration"].value * 60 / 1010
    assert entries["tolly-lora-step-time"].value == pytest.approx(step_s, abs=0.006)
    assert entries["tolly-lora-samples"].value == pytest.approx(128 / step_s, abs=0.05)


def test_what_is_computed_is_not_called_measured(profiles):
    """Catches: our own arithmetic that a FAIL gives as what the report measured."""
    entries = [entry for profile in profiles.values() for entry in profile.entries]
    called = {e.id for e in entries if e.kind.value in ("measured", "vendor")}
    assert not called & {e.id for e in entries if (e.note or "").startswith("computed")}
    computed = {e.id: e.printed for e in entries if e.kind.value == "computed"}
    assert {row.rpartition("-")[0] for row in computed if row.startswith("pt-")} == {
        "pt-a-all-reduce",
        "pt-a-reduce-scatter",
        "pt-a-sendrecv",
    }
    queries = {row: int(re.sub(r"\D", "", printed)) for row, printed in computed.items() if "quer" in printed}
    assert len(queries) == 5
    # What the paper estimates for eight GPUs is a straight line, which also gives seven.
    for row, rate in queries.items():
        (entry,) = (e for e in entries if e.id == row)
        share = 7 / 8 if row.endswith("-7gpu") else 1
        assert entry.reference().value == pytest.approx(share * rate * IMAGE_BYTES / 1e9, abs=0.006), row


def test_pt_reductions_follow_from_the_times(profiles):
    """100 (1 - A/B), printed truncated: a swapped A and B, or operation, shows here."""
    for test in ("nccl_all_reduce", "nccl_reduce_scatter", "nccl_sendrecv"):
        times = values(profiles["pt_r7615_bcm57508"], test, "time")
        reductions = values(profiles["pt_r7615_bcm57508"], test, "time_reduction")
        a, b = (next(v for k, v in times.items() if f"configuration={c}," in k) for c in "AB")
        small = next(v for k, v in reductions.items() if not k.endswith("=268435456"))
        assert 100 * (1 - a / b) == pytest.approx(small, abs=0.1)
        assert len(values(profiles["pt_r7615_bcm57508"], test, "server_power")) == 6
        assert len(reductions) == 2


def test_primergy_rates_are_queries_times_image_bytes(profiles):
    """GB/s and queries/s are the same measurement: 1 to 4 and 8 H100 NVL, and L40S x 4 and x 8 on path 3."""
    profile = profiles["primergy_cdi"]
    rates = values(profile, "resnet50_server", "data_rate")
    queries = values(profile, "resnet50_server", "rate")
    both = rates.keys() & queries.keys()
    assert len(both) == 7
    for key in both:
        assert queries[key] * IMAGE_BYTES / 1e9 == pytest.approx(rates[key], abs=0.0051)
    # 5 paths x 4 GPU counts of L40S and one with 8; 8 of H100 NVL without switches, 2 paths x 4 with.
    assert sum("gpu=L40S" in key for key in rates) == 21 and sum("gpu=H100-NVL" in key for key in rates) == 16


def test_gpus_of_a_cdi_path_share_one_link(profiles):
    """Catches: a ceiling of a link for each GPU of a path, so that two links' rate passes over one."""
    for entry in profiles["primergy_cdi"].entries:
        if entry.metric != "data_rate" or entry.test != "resnet50_server":
            continue
        reference, generation = entry.reference(), entry.scope["pcie_generation"]
        links = entry.scope["gpus"] if entry.scope["path"] == "none" else 1
        payload = host_links.payload_ceiling_gb_per_s(generation, 16, max_payload_bytes=512)
        assert reference.ceiling == pytest.approx(links * payload)
        assert reference.ceiling < links * {4: 32, 5: 64}[generation] and entry.value < reference.ceiling


def test_primergy_extrapolated_cells_do_not_gate_and_noise_is_below_every_tolerance(profiles):
    """The baseline varies by 3 %: a tighter gate blames noise, and a gate on a guess blames nobody."""
    for entry in profiles["primergy_cdi"].entries:
        if entry.metric in ("data_rate", "rate") and entry.gates:
            assert entry.tolerance is not None and entry.tolerance > 0.03
    silent = {e.id for e in profiles["primergy_cdi"].entries if not e.gates and e.test == "resnet50_server"}
    assert silent == {
        "primergy-h100nvl-none-5gpu",
        "primergy-h100nvl-none-6gpu",
        "primergy-h100nvl-none-7gpu",
        "primergy-h100nvl-none-8gpu",
        "primergy-h100nvl-rate-8gpu",
    }


def test_ml_engineering_sweep_is_complete(profiles):
    """32 KiB to 16 GiB by doubling, 20 sizes; a size left out could never be looked up."""
    sweep = values(profiles["ml_engineering"], "nccl_all_reduce", "busbw")
    sizes = sorted(int(re.search(r"size_bytes=(\d+)", key)[1]) for key in sweep)
    assert sizes == [2**n for n in range(15, 35)]


def test_ml_engineering_peaks_are_unidirectional(profiles):
    """The source prints PCIe 4 and 5 duplex in one table: the shipped figures must be the one-way rate."""
    peaks = values(profiles["ml_engineering"], "advertised_intra_node", "unidirectional_peak")
    assert "interconnect=PCIe3" not in peaks  # not in the chapter
    for generation in (4, 5, 6):
        printed = peaks[f"interconnect=PCIe{generation}"]
        assert printed == pytest.approx(host_links.raw_gb_per_s(generation, 16), rel=0.02)
    assert peaks["interconnect=PCIe7"] == 2 * peaks["interconnect=PCIe6"]


def test_ml_engineering_totals_are_what_their_nics_add_up_to(profiles):
    """Catches: the rate of one link in the place of a node's total, or bytes in the place of bits."""
    entries = [e for e in profiles["ml_engineering"].entries if e.test == "advertised_inter_node"]
    summed = [entry for entry in entries if "=" in entry.printed]
    # Printed without a sum, and against what its NICs add up to: an erratum.
    assert [e.id for e in entries if e not in summed] == ["mle-peak-omni-path-mi250-node"]
    assert len(summed) == 14
    for entry in summed:
        nics, rate, total = map(int, re.match(r"(\d+) x (\d+) = (\d+) Gb/s", entry.printed).groups())
        assert nics * rate == total
        gigabytes = entry.scope["interconnect"].startswith("NVLink")  # printed under a head of Gb/s
        assert entry.value == total * (8 if gigabytes else 1)
    links = values(profiles["ml_engineering"], "advertised_link", "unidirectional_peak")
    assert (links["interconnect=Slingshot"], links["interconnect=Omni-Path-CN100"]) == (200, 100)


def test_infiniband_doubles_by_generation_and_adds_up_by_lane(profiles):
    """Catches: lanes other than 4 left out, and the misprint of LDR with 8 lanes taken over."""
    links = values(profiles["ml_engineering"], "advertised_link", "unidirectional_peak")
    for place, rate in enumerate(("EDR", "HDR", "NDR", "XDR", "GDR", "LDR")):
        for lanes in (1, 4, 8, 12):
            assert links[f"interconnect=InfiniBand-{rate}-x{lanes}"] == 25 * 2**place * lanes


@cases(
    "words, says",
    ("volume --payload-gb 320 --ranks 2 --gb-per-s 25", "one copy 320.00 12.80"),
    ("volume --payload-gb 320 --ranks 2 --gb-per-s 200", "one copy 320.00 1.60"),
    ("volume --payload-gb 16 --ranks 8 --gb-per-s 300", "one copy 16.00 0.0533"),
    ("volume --payload-gb 16 --ranks 32 --gb-per-s 25", "one copy 16.00 0.64"),
    (
        "step --parameters 2e9 --tokens 32768 --gpus 8 --peak-tflops 312 --recompute --gb-per-s 300",
        "compute 0.4201 s",
    ),
)
def test_the_chapters_calculations_come_out_of_the_commands(shakedown, words, says):
    """Catches: a calculation that the published page sends the reader to a command for, which differs."""
    status, out, _ = shakedown("ceiling", *words.split())
    assert status == 0 and says in " ".join(out.split())


def test_every_gating_entry_says_who_set_its_gate_or_takes_it_from_its_source(profiles):
    """A tolerance without an author cannot be argued with."""
    for profile in profiles.values():
        for entry in profile.entries:
            if entry.gates and entry.tolerance and entry.kind.value in ("computed", "measured", "vendor"):
                assert entry.set_by, entry.id


@pytest.mark.parametrize("name", FOUR)
def test_show_prints_every_reference_with_its_source(name, shakedown, profiles):
    """What is not shown cannot be questioned."""
    status, out, _ = shakedown("references", "show", name)
    assert status == 0
    for entry in profiles[name].entries:
        assert entry.id in out and entry.source in out
    status, out, _ = shakedown("references", "show", name, "--json")
    shown = json.loads(out)[0]["references"]
    assert [r["id"] for r in shown] == [e.id for e in profiles[name].entries]
    assert all(r["source"] and r["gate"] is not None for r in shown)


def test_reframe_file(shakedown):
    """ReFrame looks up class, scope and metric; a bound of the wrong sign fails an improvement."""
    status, out, _ = shakedown("references", "show", "tolly_xe9680_z9664f", "pt_r7615_bcm57508", "--reframe")
    assert status == 0
    tree = yaml.safe_load(out)
    key = "nic_speed_gbps=400,nics=8,size_bytes=65536,way=same-leaf"
    value, lower, upper, unit = tree["IbReadBw"][re.escape(key)]["bandwidth"]
    assert tree["IbReadBw"]["$index"] == ["scope_key"]
    assert (value, unit) == (390.89, "Gb/s")
    assert lower == pytest.approx(-0.01) and 0 < upper < 0.01  # gate below, ceiling above
    lora = tree["Lora"]
    # Bounds of a zero reference are absolute.
    assert lora[re.escape("nodes=8")]["counter.drops"] == [0.0, None, 0.0, "packets"]
    loss = lora[re.escape("data=real,global_batch=128,model=llama2-70b")]
    assert loss["final_loss"] == [1.0, None, 0.0, "loss"]
    assert "link_utilisation" not in tree["IbReadBw"][re.escape(key)]  # it does not gate
    # ReFrame matches a missing key as an anchored regular expression: only the very same scope may match.
    pattern = next(k for k in tree["NcclAllReduce"] if "against" in k and "268435456" in k)
    scope = "configuration=A-against-B,dtype=half,gpus=6,nodes=2,size_bytes=268435456"
    assert re.match(f"^{pattern}$", scope) and not re.match(f"^{pattern}$", scope + "0")


# One-GPU figures of good H200s, a card each: h200_lora.yml and h200_gpu_rate.yml say where and when.
GOOD = {
    "h200-lora-7b-1gpu": (9.532, 9.383, 9.364, 9.519, 9.513, 9.459, 9.685, 9.755, 9.509, 9.525, 9.553, 9.677),
    "h200-lora-7b-fp8": (14.168, 14.041, 14.079, 14.091, 13.725, 13.777, 13.873, 13.929),
    "h200-rate-bf16": (
        670.5,
        665.8,
        653.9,
        664.6,
        665.1,
        656.8,
        675.9,
        664.7,
        666.9,
        667.6,
        669.5,
        670.3,
        668.8,
    ),
    "h200-lora-7b-2gpu": (18.696, 18.663, 18.653, 19.055, 19.033, 19.055, 19.174),
    "h200-rate-fp8": (1281.8, 1266.2, 1265.3, 1267.3, 1280.5),
    "h200-lora-70b-4gpu": (3.511, 3.492, 3.445),
    "h200x4-resnet50-rate-1gpu": (36178, 36281),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_cards_pass_their_gate(name, profiles):
    """Catches: a gate from two runs of one card, which seven of eight runs of good cards fail."""
    entry = next(e for p in profiles.values() for e in p.entries if e.id == name)
    assert [rate for rate in GOOD[name] if rate < entry.reference().gate] == []


def test_a_gpu_s_gate_says_of_how_many_cards_it_is(profiles):
    """Catches: a gate tighter than what 95 % of cards reach with 95 % confidence, one of few cards that is
    not called provisional, and a figure measured here that names no cards."""
    for entry in (e for profile in profiles.values() for e in profile.entries):
        on = entry.measured_on
        ours = entry.source.startswith("measured for this project") and "gpu" in entry.scope
        assert on or not ours, entry.id
        if on is None or not entry.test.startswith(("gpu_rate", "lora", "resnet50")) or not entry.gates:
            continue
        assert on.cards >= 8 or "provisional" in str(entry.set_by), entry.id
        if on.spread:
            reach = nct.ppf(0.95, on.cards - 1, norm.ppf(0.95) * on.cards**0.5) / on.cards**0.5
            assert 1 - entry.reference().gate / entry.reference().value >= reach * on.spread - 5e-4, entry.id


def test_every_unit_has_a_range(profiles):
    """Catches: a metric of a profile of which nothing says what cannot be, so that any number can."""
    assert {entry.unit for profile in profiles.values() for entry in profile.entries} <= POSSIBLE.keys()
