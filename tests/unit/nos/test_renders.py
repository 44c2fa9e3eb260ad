"""One intent on every switch system: what is rendered, what is refused, and what a comparison sees."""

import copy
import json
import re
from pathlib import Path

import pytest
import rendering
import yaml
from jinja2 import Environment
from rendering import PORTS, cabling, changed, cli, enterprise, general, intent, nvue, render

GOLDEN = Path(__file__).parent / "golden"
HOSTS = ["n1", "n2", "leaf0"]


@pytest.mark.parametrize("nos", PORTS)
def test_the_one_intent_renders_as_reviewed(nos):
    """Catches a template or filter that changes what a switch gets. Compared as structure, not text."""
    assert json.loads(json.dumps(render(nos, intent()))) == json.loads((GOLDEN / f"{nos}.json").read_text())


@pytest.mark.parametrize("nos", PORTS)
def test_the_one_intent_is_refused_by_no_system(nos):
    """Catches a preflight that turns good intents away."""
    assert general.refusals(intent(), nos, cabling(nos), ["mgmt0"], HOSTS) == []


def linked(nos: str, switch: str, **link) -> list[dict]:
    """The ports of a switch that is linked by the first port of its system, and has no host."""
    one, other = PORTS[nos]
    ends = {"leaf": "leaf0", "leaf_port": one, "spine": "spine0", "spine_port": other, **link}
    fabric = {**intent(), "switches": {"leaves": ["leaf0"], "spines": ["spine0"], "links": [ends]}}
    return general.ports(fabric, [], switch)


@pytest.mark.parametrize("nos", PORTS)
@pytest.mark.parametrize("switch", ["leaf0", "spine0"])
def test_a_link_gets_what_a_port_with_a_host_gets(nos, switch):
    """Catches maps, PFC, ECN, watchdog or MTU that an uplink or a spine's port goes without."""
    place = ("leaf0", "spine0").index(switch)
    wanted = render(nos, intent(), [cabling(nos)[place]])
    assert render(nos, intent(), linked(nos, switch)) == wanted
    assert PORTS[nos][place] in json.dumps(wanted)


@pytest.mark.parametrize("nos", PORTS)
def test_a_spine_without_hosts_is_refused_by_no_system(nos):
    """Catches a spine turned away because its `leaf_ports` is empty."""
    one, other = PORTS[nos]
    link = {"leaf": "leaf0", "leaf_port": one, "spine": "spine0", "spine_port": other}
    fabric = {**intent(), "switches": {"leaves": ["leaf0"], "spines": ["spine0"], "links": [link]}}
    assert general.refusals(fabric, nos, [], ["mgmt0"], HOSTS, "spine0") == []
    assert any("names no port" in why for why in general.refusals(fabric, nos, [], [], HOSTS, "leaf9"))
    assert any(
        "carries management" in why for why in general.refusals(fabric, nos, [], [one], HOSTS, "leaf0")
    )


def test_a_link_has_the_buffers_of_its_own_rate_and_length():
    """Catches headroom of the hosts' short cables on long ones to a spine."""
    tables = render("sonic", intent(), linked("sonic", "leaf0", speed_gbps=800, cable_m=300))
    assert tables["CABLE_LENGTH"] == {"AZURE": {"Ethernet0": "300m"}}
    assert tables["BUFFER_PG"]["Ethernet0|3"] == {"profile": "pg_lossless_800000_300m_profile"}


@pytest.mark.parametrize(("headroom_m", "link_m", "wanted"), [(5, 300, 300), (40, 5, 40), (None, 30, 100)])
def test_the_longest_cable_decides_where_a_switch_has_one_length(headroom_m, link_m, wanted):
    """Catches headroom of the hosts' 5 m on a Cumulus switch whose uplinks are 300 m: they would drop."""
    fabric = changed("roce.headroom", headroom_m and {"cable_m": headroom_m})
    ports = cabling("cumulus") + linked("cumulus", "leaf0", cable_m=link_m)
    assert nvue.tree(fabric, ports)["qos"]["roce"]["cable-length"] == wanted


def test_a_length_that_enterprise_sonic_has_no_buffers_for_is_refused_before_the_change():
    """Catches an uplink of 100 m that the module refuses after the reboot of `roce enable`."""
    ports = cabling("enterprise_sonic") + linked("enterprise_sonic", "leaf0", cable_m=100)
    reasons = enterprise.compare(intent(), ports, [3], {}, {})["refusals"]
    assert any("not 100 m of Eth1/1" in reason for reason in reasons), reasons
    ports = cabling("enterprise_sonic") + linked("enterprise_sonic", "leaf0", cable_m=300)
    assert enterprise.compare(intent(), ports, [3], {}, {})["refusals"] == []


@pytest.mark.parametrize(
    ("nos", "fabric", "words"),
    [
        ("ios", intent(), "unknown switch system 'ios'"),
        ("os9", changed("roce.pfc.priorities", [3, 4, 5]), "at most 2 lossless queues"),
        ("enterprise_sonic", changed("roce.pfc.priorities", [2, 3, 4]), "at most 2 lossless queues"),
        ("os9", changed("roce.dscp", 18), "upper three bits"),
        ("os10", changed("roce.ecn.min_bytes", 1_000_000), "no multiples of 1024"),
        ("eos", changed("roce.queue", 4), "priority, traffic class and queue equal only"),
        ("linux", changed("roce.dscp", 64), "roce.dscp 64 is not 1 to 63"),
        ("sonic", changed("roce.cnp.dscp", 26), "fabric.roce.cnp.dscp is 26 like fabric.roce.dscp"),
        ("nxos", changed("roce.pfc.priorities", [3, 6]), "must not be lossless"),
        ("eos", changed("roce.pfc.priorities", [4]), "RoCE priority 3 is not among the lossless"),
        ("linux", changed("roce.ecn.max_bytes", 1), "0 < min_bytes < max_bytes"),
        ("eos", changed("roce.ecn.mark_percent", 101), "mark_percent <= 100"),
    ],
)
def test_an_intent_that_the_switch_cannot_hold_is_refused_with_the_reason(nos, fabric, words):
    """Catches half an intent configured in silence."""
    reasons = general.refusals(fabric, nos, cabling("eos"), [], HOSTS)
    assert any(words in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda ports: ports[0].pop("host"), "port swp1 has no cabling: host is missing"),
        (lambda ports: ports[0].update(rail="rail9"), "rail 'rail9' is not in the intent"),
        (lambda ports: ports[0].update(host="n9"), "host 'n9' is not in the inventory"),
        (lambda ports: ports[1].update(port="swp1"), "port swp1 is listed twice"),
        (lambda ports: ports[1].update(host="n1"), "both cabled to n1/fab0"),
        (lambda ports: ports[1].update(port="mgmt0"), "port mgmt0 carries management"),
        (lambda ports: ports[1].update(port="Mg0"), "port Mg0 carries management"),
        (lambda ports: ports[1].update(port="management1"), "port management1 carries management"),
        (list.clear, "names no port"),
    ],
)
def test_cabling_that_cannot_be_is_refused_with_the_port(change, words):
    """Catches a port that nobody cabled, or that carries management, being configured."""
    ports = cabling("linux")
    change(ports)
    reasons = general.refusals(intent(), "linux", ports, ["mgmt0", "Management1"], HOSTS)
    assert any(words in reason for reason in reasons), reasons


def test_os9_with_link_level_flow_control_is_refused():
    """Catches PFC configured beside the flow control that excludes it."""
    running = (
        "interface hundredGigE 1/1\n no ip address\n flowcontrol rx on tx on\n!\ninterface hundredGigE 1/2\n"
    )
    reasons = general.cli_refusals(intent(), "os9", cabling("os9"), running)
    assert reasons == ["port hundredGigE 1/1: link-level flow control is on; OS9 has no PFC beside it"]


def test_a_configuration_shown_otherwise_is_no_difference():
    """Catches a change at every run: other order, other indentation, separators, DSCPs in one list."""
    wanted = "qos map dscp 24 to traffic-class 3\nqos map dscp 26 to traffic-class 3\na x\n   y 1\n   z 2\n"
    found = "! comment\nqos map dscp 24 26 to traffic-class 3\n!\na x\n z 2\n !\n y 1\nother\n"
    assert cli.compare(wanted, found, ["^qos map"])["differences"] == []


def test_what_is_ours_and_not_wanted_goes_and_the_rest_stays():
    """Catches a second lossless priority left on, and somebody else's lines removed."""
    wanted = "qos profile ROCE\n   priority-flow-control priority 3 no-drop\n"
    found = wanted + "   priority-flow-control priority 5 no-drop\nuser bob\n"
    result = cli.compare(wanted, found, ["^qos profile ROCE /"])
    assert result["commands"] == ["qos profile ROCE", "no priority-flow-control priority 5 no-drop", "exit"]


def test_commands_enter_and_leave_every_section():
    """Catches a line typed in the section of the one before."""
    wanted = "a\n b\n  c\n d\ne\n f\n"
    assert cli.compare(wanted, "a\n", [])["commands"] == [
        "a",
        "b",
        "c",
        "exit",
        "d",
        "exit",
        "e",
        "f",
        "exit",
    ]


@pytest.mark.parametrize("nos", ["eos", "nxos", "os9", "os10"])
def test_the_rendered_configuration_is_complete_after_it_was_typed(nos):
    """Catches a rendered configuration that does not satisfy its own comparison."""
    text = rendering.cli_text(nos, intent())
    assert cli.compare(text, text, [".*"])["differences"] == []
    assert len(cli.compare(text, "", [])["differences"]) == len(cli.paths(text))


def test_a_switch_shows_ranges_and_short_numbers():
    """Catches a change at every run, and on OS10 once a reload: `0-2,4` for `0,1,2,4`, `0.2` for `0.20`."""
    wanted = "qos-map traffic-class ROCE\n queue 0 qos-group 0,1,2,4,5,7\na 0.20\n"
    found = "a 0.2\nqos-map traffic-class ROCE\n !\n queue 0 qos-group 0-2,4-5,7\n"
    assert cli.compare(wanted, found, ["^qos-map traffic-class ROCE"])["differences"] == []


def test_a_hidden_default_is_no_difference():
    """Catches a change at every run: EOS hides `qos map dscp 48 to traffic-class 6`, which is its own."""
    wanted = "qos map dscp 48 to traffic-class 6\nmtu 9000\n"
    everything = "qos map dscp 48 49 50 51 to traffic-class 6\nmtu 9000\nno shutdown\n"
    result = cli.compare(wanted, "mtu 9000\n", [".*"], everything)
    assert result["differences"] == []
    assert "qos map dscp 48 to traffic-class 6" in result["found"], "what the switch does is not told"


EOS_OWNED = ["^qos profile ROCE /"]


def test_a_map_of_another_dscp_is_left():
    """Catches `no qos map dscp 46`: voice of the site mapped away because its class is the CNPs'."""
    wanted = "qos map dscp 48 to traffic-class 6\n"
    result = cli.compare(wanted, "qos map dscp 46 to traffic-class 6\n" + wanted, EOS_OWNED)
    assert (result["differences"], result["commands"]) == ([], [])
    roles = (rendering.ROLE / "vars/main.yml").read_text()
    assert "qos map dscp" not in roles.partition("  eos:\n")[2].partition("  nxos:\n")[0]


@pytest.mark.parametrize(
    ("everything", "queue"),
    [
        ("interface Ethernet1\n   uc-tx-queue 3\n      no priority\n", "uc-tx-queue"),
        ("interface Ethernet1\n   tx-queue 3\n      no priority\n", "tx-queue"),
        ("hostname leaf1\n", "uc-tx-queue"),
    ],
    ids=["Tomahawk", "Jericho", "told neither"],
)
def test_eos_queues_are_called_as_the_switchs_own_configuration_calls_them(everything, queue):
    """Catches `uc-tx-queue` typed into a Jericho switch, which knows only `tx-queue`."""
    variables = yaml.safe_load((rendering.ROLE / "vars/main.yml").read_text())
    environment = Environment(autoescape=False)  # noqa: S701  (as Ansible renders it)
    environment.tests["search"] = lambda text, pattern: re.search(pattern, text) is not None
    chosen = environment.from_string(variables["_roce_switch_eos_queue"]).render(
        roce_switch_cli_everything={"stdout": everything}
    )
    assert chosen.strip() == queue
    typed = rendering.cli_text("eos", intent(), queue=queue)
    assert f"   {queue} 3\n" in typed and ("   uc-tx-queue" in typed) == (queue == "uc-tx-queue")


def test_a_policy_of_somebody_else_is_named_as_theirs():
    """Catches a foreign `system qos` policy of NX-OS taken away unasked."""
    text = rendering.cli_text("nxos", intent())
    found = (
        "system qos\n  service-policy type network-qos STORAGE\n  service-policy type queuing output OWN\n"
    )
    result = cli.compare(text, found, [])
    assert general.others_settings(result) == [
        "system qos service-policy type network-qos (service-policy type network-qos STORAGE)",
        "system qos service-policy type queuing output (service-policy type queuing output OWN)",
    ]
    default = "system qos\n  service-policy type network-qos default-8q-nq-policy\n"
    assert general.others_settings(cli.compare(text, default, [])) == []
    # Something else in the same section is not touched.
    beside = "system qos\n  fabric-priority x\n"
    assert "no fabric-priority x" not in cli.compare(text, beside, [])["commands"]


def test_another_mtu_is_replaced_and_whose_it_was_is_told():
    """Catches a value of somebody else's replaced as if it were the default."""
    wanted = "interface Ethernet1\n mtu 9000\n"
    for was, whose in (("mtu 1500", "system"), ("mtu 4000", "other")):
        (change,) = cli.compare(wanted, f"interface Ethernet1\n {was}\n", [])["changes"]
        assert (change["port"], change["from"], change["to"], change["whose"]) == (
            "Ethernet1",
            was,
            "mtu 9000",
            whose,
        )
    mine = "interface Ethernet1\n mtu 4000\n service-profile ROCE\n"
    assert cli.compare(wanted, mine, [])["changes"][0]["whose"] == "role"


def test_unsaved_lines_are_named_and_keep_the_switch_from_being_changed():
    """Catches somebody's unsaved work written to the start-up configuration."""
    lines = cli.unsaved("hostname a\nvlan 10\n", "! saved at 12:00\nhostname a\nvlan 20\n")
    assert lines == ["vlan 10", "no vlan 20"]
    assert "not saved (vlan 10; no vlan 20)" in general.cli_unready("os10", lines, False)[0]
    assert general.cli_unready("os10", [], False) == []


def test_os9_is_changed_only_where_a_mixture_is_accepted():
    """Catches line after line typed into a switch that cannot go back by itself."""
    assert "neither a transaction nor a commit timer" in general.cli_unready("os9", [], False)[0]
    assert general.cli_unready("os9", [], True) == []


def test_enterprise_sonic_takes_one_request_unasked_and_more_only_where_a_mixture_is_accepted():
    """Catches ports left with the watchdog or MTU of the intent, and others without, by a lost connection."""
    ports = cabling("enterprise_sonic")
    read = enterprise.compare(intent(), ports, [3], {}, {})
    assert "no commit timer" in enterprise.unready(read, False)[0]
    assert enterprise.unready(read, True) == []
    one = {"needs_roce": False, "changes": [c for c in read["changes"] if c["setting"] == "mtu"][:1]}
    assert enterprise.unready(one, False) == []
    assert enterprise.unready({**one, "needs_roce": True}, False) != []


def test_the_way_back_is_typed_in_reverse():
    """Catches a policy removed while a port still carries it, and a value that is not set back."""
    before = "interface e1\n mtu 1500\n"
    now = "policy-map ROCE\n class ROCE\ninterface e1\n mtu 9216\n service-policy ROCE\n"
    assert cli.undo(before, now, now, ["ROCE"])["commands"] == [
        "interface e1",
        "no service-policy ROCE",
        "no mtu 9216",
        "exit",
        "no policy-map ROCE",
        "interface e1",
        "mtu 1500",
        "exit",
    ]
    assert cli.undo(before, before, now, ["ROCE"]) == {"commands": [], "left": []}


def test_nvue_numbers_as_text_are_no_difference_and_others_are():
    """Catches a change at every run, and a lossy RoCE mode unseen."""
    wanted = render("cumulus", intent())
    found = json.loads(json.dumps(wanted).replace("9000", '"9000"'))
    assert nvue.difference(wanted, found)["differences"] == []
    found["qos"]["roce"]["mode"] = "lossy"
    assert nvue.difference(wanted, found)["differences"] == ["qos.roce.mode: lossy -> lossless"]


@pytest.mark.parametrize(
    ("version", "on"),
    [
        ("Cumulus Linux 5.9.1", {"enable": "on"}),
        ("Cumulus Linux 5.14.0", {"enable": "on"}),
        ("Cumulus Linux 5.15.0", {"state": "enabled"}),
        ("Cumulus Linux 6.0.0", {"state": "enabled"}),
    ],
)
def test_nvue_is_written_in_the_words_of_its_release(version, on):
    """Catches `enable on` sent to a release that knows only `state enabled`, or the other way round."""
    roce = nvue.tree(intent(), cabling("cumulus"), {"version": version})["qos"]["roce"]
    assert roce == {**on, "mode": "lossless", "cable-length": 40}


@pytest.mark.parametrize(
    ("detect_ms", "wanted"), [(300, (100, 3)), (200, (100, 2)), (250, (250, 1)), (9000, (100, 90))]
)
def test_nvue_watchdog_acts_after_the_intents_time(detect_ms, wanted):
    """Catches the platform's 300 ms kept where the intent says another time."""
    dog = nvue.tree(changed("roce.pfc.watchdog.detect_ms", detect_ms), cabling("cumulus"))["qos"][
        "pfc-watchdog"
    ]
    assert (dog["polling-interval"], dog["robustness"]) == wanted
    assert wanted[0] * wanted[1] == detect_ms


def test_nvue_settings_of_somebody_else_are_told_as_theirs():
    """Catches somebody's own ECN profile on a port replaced unasked."""
    found = {
        "interface": {"swp1": {"link": {"mtu": 9216}, "qos": {"congestion-control": {"profile": "GOLD"}}}}
    }
    read = nvue.difference(nvue.tree(intent(), cabling("cumulus")), found)
    assert general.others_settings(read) == ["interface.swp1.qos.congestion-control profile (GOLD)"]


@pytest.mark.parametrize("kind", ["pfc", "mapping", "egress-scheduler", "link-pause"])
def test_nvue_profiles_of_a_port_alone_are_a_difference(kind):
    """Catches `qos roce` taken for what a port does whose own profile has PFC on another priority."""
    wanted = nvue.tree(intent(), cabling("cumulus"))
    found = json.loads(json.dumps(wanted))
    found["interface"]["swp9"] = {"qos": {kind: {"profile": "MINE"}}}  # not ours to judge
    assert nvue.difference(wanted, found)["differences"] == []
    found["interface"]["swp1"]["qos"][kind] = {"profile": "MINE"}
    read = nvue.difference(wanted, found)
    assert read["differences"] == [f"interface.swp1.qos.{kind}.profile: MINE -> absent"]
    assert general.others_settings(read) == [f"interface.swp1.qos.{kind} profile (MINE)"]


@pytest.mark.parametrize(
    ("key", "names", "others"),
    [
        ("swp1-2", ["swp1", "swp2"], ["swp3", "swp12", "swp1s0", "vlan1"]),
        ("lo,swp51-54,vlan10,20,30", ["lo", "swp52", "vlan20"], ["swp50", "swp20", "vlan15", "20"]),
        ("swp1-2s0-1,15s0-2,swp20s3,s5-6", ["swp2s1", "swp15s2", "swp20s6"], ["swp1", "swp15s3", "swp20s4"]),
        ("4,7", ["4", "7"], ["5", "swp4"]),
        ("peerlink.4094", ["peerlink.4094"], ["peerlink", "peerlink.4095"]),
    ],
)
def test_nvue_shows_what_is_alike_once(key, names, others):
    """Catches: every port of a switch blamed whose ports are all alike, as `nv config show` then has one key.

    Keys as in Cumulus Linux's own examples, `nv config show` and startup.yaml.
    """
    tree = {key: {"link": {"mtu": 9000}}}
    assert [name for name in names if nvue._of(tree, name) != {"link": {"mtu": 9000}}] == []
    assert [name for name in others if nvue._of(tree, name) is not None] == []


def test_nvue_ports_in_one_range_are_compared_each_with_what_is_its_own():
    """Catches a switch that is as wanted told as unset, and one port's own MTU covered by its range's."""
    wanted = nvue.tree(intent(), cabling("cumulus"))
    found = json.loads(json.dumps(wanted))
    ports = found["interface"]
    mtu = ports["swp1"].pop("link")
    ports["swp1-2"] = {"qos": ports.pop("swp2")["qos"], "type": "swp"}
    ports["eth0,swp1-4"] = {"link": mtu}
    del ports["swp1"]
    classes = found["qos"]["congestion-control"]["ROCE"]["traffic-class"]
    classes["2-3"] = classes.pop("3")
    read = nvue.difference(wanted, found)
    assert (read["differences"], read["found"]) == ([], wanted)
    ports["swp2"] = {"link": {"mtu": 1500}}
    assert nvue.difference(wanted, found)["differences"] == ["interface.swp2.link.mtu: 1500 -> 9000"]
    ports["swp1-2"]["qos"]["pfc"] = {"profile": "MINE"}
    assert "interface.swp1.qos.pfc.profile: MINE -> absent" in nvue.difference(wanted, found)["differences"]


def test_nvue_refuses_what_qos_roce_does_not_make():
    """Catches an intent with DSCP 18 answered with NVUE's fixed 24 to 31."""
    assert nvue.refusals(intent()) == []
    assert nvue.refusals(changed("roce.dscp", 18)) != []
    assert nvue.refusals(changed("roce.cnp.scheduler", "dwrr")) != []


def facts():
    """Network resources of an Enterprise SONiC switch after `roce enable` and the watchdog."""
    port = {
        "qos_maps": {"dscp_fwd_group": "ROCE"},
        "queues": [{"id": 3, "wred_profile": "ROCE"}, {"id": 6}],
        "cable_length": "40m",
        "pfc": {
            "asymmetric": False,
            "priorities": [{"dot1p": 3, "enable": True}, {"dot1p": 4, "enable": False}],
            "watchdog_action": "drop",
            "watchdog_detect_time": 200,
            "watchdog_restore_time": 400,
        },
    }
    return {
        "roce": {"roce_enable": True, "pfc_priority": "3"},
        "qos_maps": {
            "dscp_maps": [
                {"name": "ROCE", "entries": [{"dscp": 26, "fwd_group": "3"}, {"dscp": 48, "fwd_group": "6"}]}
            ]
        },
        "qos_wred": [
            {
                "name": "ROCE",
                "ecn": "green",
                "green": {
                    "enable": True,
                    "min_threshold": 1048576,
                    "max_threshold": 2097152,
                    "drop_probability": 5,
                },
            }
        ],
        "qos_interfaces": [{"name": name, **copy.deepcopy(port)} for name in PORTS["enterprise_sonic"]],
    }


def es(found, fabric=None):
    """The comparison of an Enterprise SONiC switch."""
    mtus = dict.fromkeys(PORTS["enterprise_sonic"], 9000)
    return enterprise.compare(fabric or intent(), cabling("enterprise_sonic"), [3], found, mtus)


def test_an_enterprise_sonic_switch_after_roce_enable_is_as_wanted():
    """Catches a change, and so a reboot, at every run."""
    result = es(facts())
    assert (result["differences"], result["refusals"], result["needs_roce"]) == ([], [], False)


def test_a_port_that_uses_another_map_is_no_proof_of_the_right_map():
    """Catches a correct map that one of our ports does not use."""
    found = facts()
    found["qos_interfaces"][1]["qos_maps"]["dscp_fwd_group"] = "default"
    assert any(line.startswith("group of DSCP 26") for line in es(found)["differences"])


def second_profile(found):
    """Add an ECN profile with other thresholds than the class has."""
    other = copy.deepcopy(found["qos_wred"][0])
    found["qos_wred"].append(other | {"name": "OTHER", "green": {**other["green"], "max_threshold": 9}})


def of_another_queue(found):
    """Use the right profile on another queue than RoCE's."""
    for port in found["qos_interfaces"]:
        port["queues"] = [{"id": 3}, {"id": 4, "wred_profile": "ROCE"}]


def on_one_port_alone(found):
    """Use the right profile on one port, and none on the other."""
    found["qos_interfaces"][1]["queues"] = []


def other_on_one_port(found):
    """Use the other profile on one port."""
    second_profile(found)
    found["qos_interfaces"][1]["queues"][0]["wred_profile"] = "OTHER"


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("plant", [of_another_queue, on_one_port_alone, other_on_one_port])
def test_a_profile_that_the_class_does_not_use_on_every_port_is_no_ecn(plant, enabled):
    """Catches ECN that is defined, and marks another queue or another port."""
    found = facts()
    found["roce"] = found["roce"] if enabled else {}
    plant(found)
    lines = es(found)["differences"]
    assert "ECN: None -> [1048576, 2097152, 5]" in lines
    assert len(lines) == 1 or not enabled  # by hand: the switch's own word for the class is missing as well


@pytest.mark.parametrize("told", [True, False])
def test_a_profile_of_somebody_else_is_not_taken_for_the_class(told):
    """Catches a correct switch blamed for the thresholds of a profile that none of its RoCE queues uses."""
    found = facts()
    second_profile(found)
    if not told:
        for port in found["qos_interfaces"]:
            del port["queues"]
    assert es(found)["differences"] == []


def test_a_group_that_goes_to_another_queue_is_a_difference():
    """Catches RoCE classified rightly and put into a queue without PFC."""
    found = facts()
    found["qos_maps"]["fwd_group_queue_maps"] = [
        {"name": "Q", "entries": [{"fwd_group": str(n), "queue_index": 1 if n == 3 else n} for n in range(8)]}
    ]
    assert es(found)["differences"] == []
    for port in found["qos_interfaces"]:
        port["qos_maps"]["fwd_group_queue"] = "Q"
    assert es(found)["differences"] == ["queue of group 3: 1 -> 3"]


def test_roce_enable_over_existing_maps_is_refused():
    """Catches the reboot that ends in an error, or maps of one's own cleared by force."""
    found = {"roce": {"roce_enable": False}, "qos_maps": {"dscp_maps": [{"name": "mine", "entries": []}]}}
    result = es(found)
    assert result["needs_roce"] is True
    assert any("existing QoS maps" in reason for reason in result["refusals"])


def test_enterprise_sonic_refuses_numbers_that_roce_enable_does_not_make():
    """Catches an intent with other ECN thresholds answered with the fixed ones."""
    assert any("fixes ECN" in r for r in es({}, changed("roce.ecn.min_bytes", 2048))["refusals"])
    assert any("DSCP" in r for r in es({}, changed("roce.dscp", 18))["refusals"])


def test_a_class_made_by_hand_is_as_wanted():
    """Catches a correct switch rebooted by `roce enable`, or refused because it has maps."""
    found = facts()
    found["roce"] = {}
    result = es(found)
    assert (result["differences"], result["refusals"], result["needs_roce"]) == ([], [], False)
    found["qos_wred"][0]["green"]["drop_probability"] = 50
    result = es(found)
    assert result["needs_roce"] is True
    assert any("existing QoS maps" in reason for reason in result["refusals"])


@pytest.mark.parametrize(
    ("plant", "line"),
    [
        (lambda port: port.update(cable_length="300m"), "cable Eth1/2: 300m -> 40m"),
        (lambda port: port["pfc"].update(asymmetric=True), "asymmetric Eth1/2: True -> False"),
    ],
)
def test_cable_length_and_symmetry_are_read_back(plant, line):
    """Catches the headroom of another cable, or PFC obeyed and never sent, taken for as wanted."""
    found = facts()
    plant(found["qos_interfaces"][1])
    result = es(found)
    assert (result["differences"], result["needs_roce"]) == ([line], False)


def test_every_value_that_the_module_has_a_default_for_is_given():
    """Catches `cable_length` left to the module, which then writes 40m over what is there."""
    found = es(facts(), changed("roce.headroom", None))["found"]
    found["cable Eth1/2"] = "300m"
    made = enterprise.interfaces(changed("roce.headroom", None), cabling("enterprise_sonic"), found)
    assert [one["cable_length"] for one in made] == ["40m", "300m"]
    assert made[0]["pfc"] == {
        "asymmetric": False,
        "watchdog_action": "drop",
        "watchdog_detect_time": 200,
        "watchdog_restore_time": 400,
    }
    assert enterprise.interfaces(intent(), cabling("enterprise_sonic"), found)[1]["cable_length"] == "40m"


def test_enterprise_sonic_refuses_a_cable_that_the_module_does_not_know():
    """Catches 20 m asked of a system that takes 5, 40 or 300 m, found by an error of the module."""
    assert any("5, 40 or 300 m" in r for r in es(facts(), changed("roce.headroom.cable_m", 20))["refusals"])


@pytest.mark.parametrize("nos", PORTS)
def test_an_intent_without_watchdog_times_is_rendered(nos):
    """Catches a KeyError for an intent that leaves the watchdog, which the model allows, out."""
    fabric = intent()
    del fabric["roce"]["pfc"]["watchdog"]
    assert "watchdog default" not in json.dumps(render(nos, fabric))
