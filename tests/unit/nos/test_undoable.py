"""Before the first change: would undoing run, may it begin now, what is kept; and what was lost on trial."""

import json

import pytest
from rendering import PLATFORM, PORTS, cli, cli_owned, cli_text, general, intent, nvue, render
from rendering import sonic_change as sonic
from test_counter_parsers import OS10, OS10_PORT, RAW

from tests.unit.nos.os9_printed import OS9_PORT

TOLD = {
    "privilege": "Current privilege level is 15\n",
    "sessions": "",
    "running": "hostname leaf1\n",
    "checkpoints": "",
    "space": "  62277025792 bytes total (48000000000 bytes free)\n",
}
ADMIN = {"privilege": "user:admin\n        roles:network-admin \n"}
TEN = {"checkpoints": "".join(f"{n}) mine-{n}:\nCreated by eve\n" for n in range(1, 11))}
OPEN = {"sessions": json.dumps({"maxOpenSessions": 2, "sessions": {n: {"state": "pending"} for n in "ab"}})}
SAVES = {"sessions": json.dumps({"saveToStartupConfigOnCommit": True, "sessions": {}})}
REMOTE = {"running": "feature tacacs+\naaa authentication login default group tac\n"}


@pytest.mark.parametrize(
    ("nos", "told", "words"),
    [
        ("eos", {}, ""),
        ("os9", {}, ""),
        ("os10", {"space": ""}, ""),
        ("nxos", ADMIN, ""),
        ("eos", {"privilege": "Current privilege level is 1\n"}, "privilege 1; undoing needs 15"),
        ("os10", {"privilege": ""}, "no privilege that the switch tells"),
        ("nxos", {"privilege": "user:a\n  roles:network-operator \n"}, "has roles network-operator"),
        ("nxos", {"privilege": ""}, "no role that the switch tells"),
        ("nxos", ADMIN | REMOTE, "scheduler aaa-authentication username"),
        (
            "nxos",
            ADMIN | {"running": REMOTE["running"] + "scheduler aaa-authentication username a password 7 x\n"},
            "",
        ),
        ("nxos", ADMIN | {"running": "aaa authentication login default group local\n"}, ""),
        ("nxos", ADMIN | TEN, "all 10 checkpoints are taken: free one (`no checkpoint mine-1`)"),
        ("nxos", ADMIN | {"checkpoints": TEN["checkpoints"].replace("mine", "system-fm")}, ""),
        ("eos", OPEN, "all 2 configuration sessions are open (a, b)"),
        ("eos", {"sessions": OPEN["sessions"].replace('"b"', '"shakedown-1"')}, ""),
        ("eos", SAVES, "a commit saves at once"),
        (
            "os9",
            {"space": "flash: 2056916992 bytes total (40960 bytes free)\n"},
            "40960 bytes are free on its flash",
        ),
        ("eos", {"space": "  62,480,097,280 bytes total (62,277,025,792 bytes free)\n"}, ""),
        ("eos", {"space": "  62,480,097,280 bytes total (40,960 bytes free)\n"}, "40,960 bytes are free"),
    ],
)
def test_a_change_whose_undo_would_not_run_is_refused_in_one_line(nos, told, words):
    """Catches a trial begun whose timer, checkpoint, session or user cannot take it back."""
    reasons = cli.undoable(nos, TOLD | told, 300)
    assert bool(reasons) == bool(words) and words in "; ".join(reasons)
    assert len(reasons) < 2 and "\n" not in "".join(reasons)


def test_a_timer_of_less_than_a_minute_is_refused_on_nxos():
    """Catches `time start +00:00`, which runs the rollback at once, or never."""
    assert "counts minutes" in cli.undoable("nxos", TOLD | ADMIN, 59)[0]
    assert cli.undoable("nxos", TOLD | ADMIN, 60) == []


DF = "/dev/sda3 32896880 9000000 {} 30% /host\n"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("running\n" + DF.format(20000000), ""),
        ("degraded\n" + DF.format(20000000), ""),
        ("missing systemd-run\nrunning\n" + DF.format(20000000), "no systemd-run"),
        ("missing nv config apply --confirm\n" + DF.format(20000000), "no nv config apply --confirm"),
        ("refused settings of root are pending\n" + DF.format(20000000), "settings of root are pending"),
        ("maintenance\n" + DF.format(20000000), "systemd is maintenance"),
        ("running\n" + DF.format(100), "100 KiB is free"),
        ("running\n", "nobody tells how much"),
    ],
)
def test_a_shell_without_its_timer_or_its_room_is_refused(told, words):
    """Catches SONiC without systemd-run, Cumulus without --confirm, and a full disk."""
    reasons = general.shell_undoable(told)
    assert bool(reasons) == bool(words) and words in "; ".join(reasons)


@pytest.mark.parametrize(
    ("window", "now", "trial_s", "open_"),
    [
        ("", "12:00", 300, True),
        ("22:00-05:00", "23:30", 300, True),
        ("22:00-05:00", "04:50", 300, True),
        ("22:00-05:00", "04:56", 300, False),
        ("22:00-05:00", "12:00", 300, False),
        ("08:00-09:00", "08:00", 300, True),
        ("8-9", "08:00", 300, False),
    ],
)
def test_a_change_begins_and_ends_in_its_window(window, now, trial_s, open_):
    """Catches an undo that falls into working hours, a window over midnight read as none, a typing error."""
    assert (general.closed(window, trial_s, now) == []) == open_


FRR = json.dumps(
    {
        "default": {
            "ipv4Unicast": {"peers": {"10.0.0.1": {"state": "Established"}, "swp51": {"state": "Idle"}}}
        }
    }
)
EOS = json.dumps({"vrfs": {"default": {"peers": {"10.0.0.1": {"peerState": "Established"}}}}})
NXOS = """VRF default, local ASN 65001
Neighbor        ASN    Flaps LastUpDn|LastRead|LastWrit St Port(L/R)  Notif(S/R)
10.0.0.1        65000 0     1d02h   |never   |never    E   179/51453        0/0
10.0.0.2        65000 3     00:01:00|never   |never    I   0/0              0/0
"""
DELL = """BGP router identifier 10.9.9.9 local AS number 65001
Neighbor      AS      MsgRcvd  MsgSent  Up/Down    State/Pfx
10.0.0.1      65000   100      99       1d02h      12
10.0.0.2      65000   0        0        never      Active
"""


@pytest.mark.parametrize(
    ("nos", "printed"),
    [("sonic", FRR), ("cumulus", FRR), ("eos", EOS), ("nxos", NXOS), ("os9", DELL), ("os10", DELL)],
)
def test_a_session_that_was_lost_on_trial_is_named(nos, printed):
    """Catches an uplink's session that goes down under the change, kept all the same."""
    before = general.health(nos, "bgp", printed)
    assert before == {"BGP session with 10.0.0.1": "established"}
    worse = (
        printed.replace("Established", "Active").replace(" E   179", " I   179").replace(" 12\n", " Idle\n")
    )
    assert general.lost(general.health(nos, "bgp", worse), before) == ["BGP session with 10.0.0.1"]
    assert general.lost({}, before, "lldp") == []
    assert general.health(nos, "bgp", "% BGP inactive") == general.health(nos, "lldp", "% LLDP is off") == {}


@pytest.mark.parametrize(
    ("nos", "read", "words"),
    [
        ("sonic", {"way": "reload"}, "ALL ports go down; undone by a timer"),
        ("sonic", {"way": "load", "changes": []}, "no port goes down"),
        (
            "enterprise_sonic",
            {"needs_roce": True},
            "REBOOTS, twice if it is undone; undone by this run alone",
        ),
        (
            "eos",
            {"changes": [{"setting": "mtu", "port": "", "where": "", "from": "", "to": "", "whose": "role"}]},
            "a new MTU",
        ),
    ],
)
def test_the_table_ends_with_the_risk(nos, read, words):
    """Catches --check that shows lines and not that they take every port down."""
    assert words in general.change_table({"differences": ["x"], **read}, "leaf1", nos)[-1]


@pytest.mark.parametrize("nos", ["eos", "nxos", "os9", "os10"])
def test_a_log_line_between_is_nobodys_work(nos):
    """Catches a line of the log, shown on the terminal, refused or saved as another admin's."""
    from tests.switches.cli_device import LOG_LINES

    text = cli_text(nos, intent())
    assert cli.paths(text + LOG_LINES[nos] + "\n") == cli.paths(text)


def test_what_the_switch_did_not_save_is_named():
    """Catches "as wanted" over a configuration that a restart takes away."""
    wanted = cli_text("eos", intent())
    owned = cli_owned("eos", intent())
    assert cli.unkept(wanted, wanted, wanted, owned) == []
    assert cli.unkept(wanted, "hostname leaf1\n", wanted, owned) == [" / ".join(p) for p in cli.paths(wanted)]
    stale = wanted + "priority-flow-control all off\n"
    assert cli.unkept(wanted, stale, wanted, owned) == ["no priority-flow-control all off"]


@pytest.mark.parametrize("nos", ["eos", "nxos", "os9", "os10"])
def test_the_way_back_of_a_command_line_is_exactly_what_was_kept(nos):
    """Catches lines of ours left, others' lines taken or typed, and a port that was never kept."""
    one, other = PORTS[nos]
    # The second port is cabled later, and has something of its own then.
    ports = [{"port": one, "host": "n1", "netdev": "fab0", "rail": "rail0"}]
    wanted, owned = cli_text(nos, intent(), ports), cli_owned(nos, intent())
    before = f"hostname leaf1\ninterface {one}\n   description a\n   mtu 1500\n"
    before += f"interface {other}\n   description b\n"
    kept = json.loads(json.dumps(cli.original(before, wanted, owned)))
    assert kept == {"": [], f"interface {one}": [[f"interface {one}"], [f"interface {one}", "mtu 1500"]]}
    both = cli_text(nos, intent())
    running = f"hostname changed\n{wanted}interface {other}\n   description b\n   mtu 4000\nvlan 7\n"
    way = cli.back(kept, both, owned, [])
    read = cli.compare(way["wanted"], running, way["owned"])
    typed = read["commands"]
    assert f"interface {one}" in typed and "mtu 1500" in typed
    assert not [
        line
        for line in typed
        if other in line or "vlan" in line or "hostname" in line or "description" in line
    ]
    assert cli.compare(way["wanted"], before, way["owned"])["differences"] == []
    # A port that is cabled no more, and a line of an earlier intent: what was typed is known.
    first = wanted + "qos of an earlier intent\n"
    made = json.loads(json.dumps(general.typed(cli.compare(first, before, owned))))
    way = cli.back(kept, "", [], made)
    again = cli.compare(way["wanted"], first, way["owned"])["commands"]
    assert "no qos of an earlier intent" in again and "mtu 1500" in again
    assert set(again) >= {line for line in typed if line.startswith("no ") and "ROCE" in line}
    # The next run takes it away, too, and nothing from a port that is not ours now.
    later = cli.compare(cli_text(nos, intent(), [{**ports[0], "port": other}]), first, [], "", made)
    assert "no qos of an earlier intent" in later["commands"] and f"interface {one}" not in later["commands"]
    # What refers to a policy goes before the policy.
    assert [line for line in typed if line.startswith("no ") and "ROCE" in line][-1].startswith(
        ("no qos", "no wred", "no class", "no dcb", "no trust", "no policy")
    )


# How a port hangs on a policy of ours, that policy, and one of ours that it makes use of itself.
ATTACHED = {
    "eos": ("service-profile ROCE", "qos profile ROCE", None),
    "nxos": (
        "service-policy type qos input ROCE-IN",
        "policy-map type qos ROCE-IN",
        "class-map type qos match-any ROCE",
    ),
    "os9": ("service-policy output ROCE", "policy-map-output ROCE", "wred-profile ROCE"),
    "os10": ("service-policy output type queuing ROCE", "policy-map type queuing ROCE", "wred ROCE"),
}


@pytest.mark.parametrize("nos", ATTACHED)
def test_what_somebody_elses_port_hangs_on_is_his_whatever_its_name(nos):
    """Catches another's policy that is called ROCE rewritten unasked."""
    wanted, owned = cli_text(nos, intent()), cli_owned(nos, intent())
    line, policy, _ = ATTACHED[nos]
    his = f"interface Ethernet9/9\n   {line}\n"
    read = cli.compare(wanted, f"{policy}\n   something of his\n{his}", owned)
    named = [c["whose"] for c in read["changes"] if policy in (c["where"], c["where"].split(" / ")[0])]
    assert named and set(named) == {"other"}
    # A port of ours that is cabled no more is not somebody else's.
    mine = [["interface Ethernet9/9", "policy", line]]
    read = cli.compare(wanted, f"{policy}\n{his}", owned, "", mine)
    assert not [c for c in read["changes"] if c["whose"] == "other"]


USERS = [
    *((nos, f"interface Ethernet9/9\n   {line}\n", line) for nos, (line, *_) in ATTACHED.items()),
    ("nxos", "policy-map type qos SAP\n  class ROCE-CNP\n", "class ROCE-CNP"),
    ("os9", "interface Vlan 7\n dcb-map ROCE\n", "dcb-map ROCE"),
    ("os10", "interface ethernet1/1/9\n trust-map dscp ROCE\n", "trust-map dscp ROCE"),
    # In words that nobody foresaw: whatever is called so stays.
    *((nos, "vxlan 7\n  use policy ROCE of the fabric\n", "use policy ROCE") for nos in ATTACHED),
]


def heads(text):
    """The lines of policies of ours."""
    return {path[0] for path in cli.paths(text) if "ROCE" in path[0]}


def taken(commands):
    """What is taken away as a whole, and not from a port."""
    within, found = False, set()
    for line in commands:
        within = line.startswith(("interface ", "system qos")) or (within and line != "exit")
        found |= {line[3:]} if line.startswith("no ") and not within else set()
    return found


@pytest.mark.parametrize(("nos", "his", "line"), USERS)
@pytest.mark.parametrize("way_out", ["rollback", "undo"])
def test_a_policy_in_use_stays_under_its_user_and_is_named(nos, his, line, way_out):
    """Catches ours taken away under somebody's port on a rollback, or in a trial, without a word."""
    wanted, owned = cli_text(nos, intent()), cli_owned(nos, intent())
    before = "hostname leaf1\n" + "".join(f"interface {port}\n   mtu 1500\n" for port in PORTS[nos])
    if way_out == "rollback":
        made = general.typed(cli.compare(wanted, before, owned))
        way = cli.back(cli.original(before, wanted, owned), wanted, owned, made)
        read = cli.compare(way["wanted"], wanted + his, way["owned"])
        typed, stays = read["commands"], read["stays"]
        assert general.others_settings(read) == []
    else:
        read = cli.undo(before, wanted + his, wanted, owned)
        typed, stays = read["commands"], [one for one in read["left"] if "in use" in one]
    _, policy, deeper = ATTACHED[nos]
    needs = {policy, deeper} - {None} if line == ATTACHED[nos][0] else {"ROCE"}
    for one in needs:
        assert any(one in said for said in stays), stays
    assert all(line.split(" ROCE")[0] in said for said in stays), stays
    left = {said.partition(" (in use: ")[0] for said in stays}
    assert taken(typed) & heads(wanted) == heads(wanted) - left
    assert left != heads(wanted) or nos == "eos" or "use policy" in line
    # Once nobody makes use of it any more it goes; and a name in a description makes use of nothing.
    free = wanted + "interface Ethernet9/9\n   description class ROCE of the fabric\n   vrf ROCE\n"
    free += "vrf instance ROCE\nvlan 7\n   name ROCE\nip access-list ROCE\n"
    assert not [c for c in cli.compare(wanted, free, owned)["changes"] if c["whose"] == "other"]
    if way_out == "rollback":
        read = cli.compare(way["wanted"], free, way["owned"])
        assert read["stays"] == [] and heads(wanted) <= taken(read["commands"])


def test_a_row_in_use_stays_under_its_user_and_is_named():
    """Catches SONiC's maps, schedulers and profiles of ours taken away under another's port."""
    wanted = {"DSCP_TO_TC_MAP": {"ROCE": {"26": "3"}}, "TC_TO_QUEUE_MAP": {"ROCE": {"3": "3"}}}
    wanted |= {"WRED_PROFILE": {"ROCE": {"ecn": "ecn_all"}}, "SCHEDULER": {"roce.cnp": {"type": "STRICT"}}}
    wanted |= {"BUFFER_PROFILE": {"pg_lossless_1_5m_profile": {"size": "1"}}}
    wanted |= {"PORT_QOS_MAP": {"Ethernet0": {"dscp_to_tc_map": "ROCE", "tc_to_queue_map": "ROCE"}}}
    before = {"PORT": {"Ethernet0": {}}, "PORT_QOS_MAP": {"Ethernet8": {"dscp_to_tc_map": "AZURE"}}}
    kept = json.loads(json.dumps(sonic.original(before, wanted)))
    now = sonic.merged(wanted, before)
    assert sonic.stays(kept, now) == []
    now["PORT_QOS_MAP"]["Ethernet8"] = {"dscp_to_tc_map": "[DSCP_TO_TC_MAP|ROCE]"}
    now["QUEUE"] = {"Ethernet8|3": {"wred_profile": "ROCE", "scheduler": "roce.cnp"}}
    now["BUFFER_PG"] = {"Ethernet8|3": {"profile": "pg_lossless_1_5m_profile"}}
    assert sonic.stays(kept, now) == [
        "BUFFER_PROFILE|pg_lossless_1_5m_profile (in use: BUFFER_PG|Ethernet8|3 profile)",
        "DSCP_TO_TC_MAP|ROCE (in use: PORT_QOS_MAP|Ethernet8 dscp_to_tc_map)",
        "SCHEDULER|roce.cnp (in use: QUEUE|Ethernet8|3 scheduler)",
        "WRED_PROFILE|ROCE (in use: QUEUE|Ethernet8|3 wred_profile)",
    ]
    # What holds only a field of ours, such as a cable's length, nobody names.
    assert (
        sonic.stays({"CABLE_LENGTH|AZURE": {"Ethernet0": None}}, {"CABLE_LENGTH": {"AZURE": {}}, **now}) == []
    )
    after = sonic.merged(sonic.back(kept, now), now)
    assert "TC_TO_QUEUE_MAP" not in after and "Ethernet0" not in after["PORT_QOS_MAP"]
    for table in ("DSCP_TO_TC_MAP", "WRED_PROFILE", "SCHEDULER", "BUFFER_PROFILE"):
        assert after[table] == wanted[table]
    undo = sonic.undo(now, before, wanted)
    assert set(sonic.stays(kept, now)) <= set(undo["left"])
    assert (
        undo["target"]["WRED_PROFILE"] == wanted["WRED_PROFILE"] and "TC_TO_QUEUE_MAP" not in undo["target"]
    )
    assert "Ethernet0" not in undo["target"]["PORT_QOS_MAP"] and "WRED_PROFILE" not in undo["rows"]


def test_a_profile_in_use_stays_on_cumulus_and_is_named():
    """Catches the congestion profile taken away under another's port."""
    ours = [{"port": "swp1"}]
    wanted, before = nvue.tree(intent(), ours), {"interface": {"swp9": {"link": {"mtu": 9216}}}}
    kept = json.loads(json.dumps(nvue.original([{"set": before}], wanted)))
    now = json.loads(json.dumps(wanted))
    assert nvue.stays(kept, now) == [] and "congestion-control" in nvue.back(kept, now)["qos"]
    now["interface"]["swp9"] = {"qos": {"congestion-control": {"profile": "ROCE"}}}
    (said,) = nvue.stays(kept, now)
    assert said == ("qos.congestion-control.ROCE (in use: interface.swp9.qos.congestion-control.profile)")
    way = nvue.back(kept, now)
    assert "congestion-control" not in way["qos"] and way["qos"]["roce"]["mode"] is None
    assert way["interface"]["swp1"]["qos"]["congestion-control"] == {"profile": None}
    undo = nvue.undo([{"set": now}], [{"set": before}], wanted, [])
    assert said in undo["left"] and "congestion-control" not in undo["patch"][0]["unset"]["qos"]
    assert undo["patch"][0]["unset"]["interface"]["swp1"]["qos"]["congestion-control"] == {"profile": {}}


def test_only_what_the_role_typed_is_its_own():
    """Catches another admin's value typed over, or his line taken away, because its port carries ours."""
    wanted, owned = cli_text("eos", intent()), cli_owned("eos", intent())
    port, other = (f"interface {name}" for name in PORTS["eos"])
    made = json.loads(json.dumps(general.typed(cli.compare(wanted, f"{port}\n", owned))))
    mtu = next(line for place, _, line in made if place == port and line.startswith("mtu"))
    hers = f"{port}\n   mtu 4000\n   priority-flow-control priority 5 no-drop"
    found = wanted.replace(f"{port}\n   {mtu}", hers)
    found = found.replace("watchdog action drop\n", "watchdog action notify-only\n")
    read = cli.compare(wanted, found, owned)
    assert "other" not in {c["whose"] for c in read["changes"]}  # by name and place alone
    told = general.others_settings(general.whose(read, made))
    assert sorted(one.split(" (")[1] for one in told) == [
        "mtu 4000)",
        "priority-flow-control pause watchdog action notify-only)",
        "priority-flow-control priority 5 no-drop)",
    ]
    # What an earlier intent typed is the role's; where nothing of it was kept, nothing is said anew.
    earlier = general.whose(
        cli.compare(wanted, wanted.replace(mtu, "mtu 4200"), owned), [*made, [port, "mtu", "mtu 4200"]]
    )
    assert general.others_settings(earlier) == [f"{other} mtu (mtu 4200)"]
    assert general.whose(read, None) == read


def test_where_the_role_never_ran_nothing_is_its_own():
    """Catches rows and profiles of somebody's that are called ROCE, or stand beside them, typed over."""
    wanted = render("sonic", intent())
    found = sonic.merged(wanted, PLATFORM)
    found["WRED_PROFILE"]["ROCE"]["green_max_threshold"] = "7"
    found["PORT"]["Ethernet0"]["mtu"] = "4000"
    nv = json.loads(json.dumps(render("cumulus", intent())))
    nv["qos"]["roce"]["mode"] = "lossy"
    for golden, read in (
        (wanted, sonic.difference(wanted, found)),
        (nv, nvue.difference(render("cumulus", intent()), nv)),
    ):
        assert read["changes"], golden
        assert general.others_settings(read) == []  # by name and place
        assert len(general.others_settings(general.whose(read, []))) == len(read["changes"])
        typed = [[c["where"], c["setting"], c["from"]] for c in read["changes"]]
        assert general.others_settings(general.whose(read, typed)) == []


def test_the_way_back_of_sonic_is_exactly_what_was_kept():
    """Catches a row of ours that stays, a range of somebody's that stays split, and others' fields."""
    wanted = render("sonic", intent())
    before = {
        **PLATFORM,
        "QUEUE": {"Ethernet0|3-4": {"scheduler": "scheduler.0"}},
        "VLAN": {"Vlan7": {"vlanid": "7"}},
    }
    kept = json.loads(json.dumps(sonic.original(before, wanted)))
    assert not [name for name in kept if name.startswith(("VLAN", "DEVICE_METADATA"))]
    running = sonic.merged(wanted, before)
    running["PORT"]["Ethernet0"]["description"] = "set later"
    back = sonic.back(kept, running)
    there = sonic.merged(back, running)
    assert there["PORT"]["Ethernet0"].pop("description") == "set later"
    assert there == before
    read = sonic.difference(back, running, [], wanted)
    assert (
        read["differences"]
        and read["way"] == "reload"
        and not [c for c in read["changes"] if c["whose"] == "other"]
    )
    assert sonic.difference(back, before)["differences"] == []
    # The switch names the profile by itself once it is there; another port may come to use it.
    (profile,) = (key for key in running["BUFFER_PROFILE"] if key.startswith("pg_lossless"))
    del wanted["BUFFER_PROFILE"][profile]
    assert not [c for c in sonic.difference(back, running, [], wanted)["changes"] if c["whose"] == "other"]
    used = {**running, "BUFFER_PG": {**running["BUFFER_PG"], "Ethernet8|3": {"profile": profile}}}
    assert profile not in sonic.back(kept, used).get("BUFFER_PROFILE", {})
    map_used = {
        **running,
        "PORT_QOS_MAP": {**running["PORT_QOS_MAP"], "Ethernet8": {"dscp_to_tc_map": "ROCE"}},
    }
    assert "DSCP_TO_TC_MAP" in back and "DSCP_TO_TC_MAP" not in sonic.back(kept, map_used)
    named = {**running, "PORT_QOS_MAP": {**running["PORT_QOS_MAP"], "Ethernet8": {"dscp_to_tc_map": "AZURE"}}}
    assert "CABLE_LENGTH" in sonic.back(kept, named)  # AZURE, too, and no map
    undone = sonic.undo(sonic.merged(back, running), running, back)
    assert undone["target"] == running and undone["left"] == []


def test_the_way_back_of_cumulus_is_exactly_what_was_kept():
    """Catches a setting of ours that stays set, and one of somebody's that is not set again."""
    wanted = render("cumulus", intent())
    before = [{"set": {"interface": {"swp1": {"link": {"mtu": 9216}}, "eth0": {"ip": {"address": {}}}}}}]
    kept = json.loads(json.dumps(nvue.original(before, wanted)))
    back = nvue.back(kept)
    unset, given = nvue.patch(back)
    assert given == {"set": {"interface": {"swp1": {"link": {"mtu": 9216}}}}}
    assert unset["unset"]["qos"]["roce"] and "link" in unset["unset"]["interface"]["swp2"]
    assert nvue.difference(back, before[0]["set"])["differences"] == []
    read = nvue.difference(back, wanted)
    assert read["differences"] and not [c for c in read["changes"] if c["whose"] == "other"]


PRINTED = RAW | {
    "os9": ("hundredGigE 1/1", {"interface hundredGigE 1/1": OS9_PORT}),
    "os10": ("ethernet1/1/4", {"interface ethernet1/1/4": OS10_PORT, "queues ethernet1/1/4": OS10}),
}
ERRORS = {"sonic": '"SAI_PORT_STAT_IF_IN_ERRORS": "', "cumulus": '"errors": ', "eos": '"inErrors": '}
ERRORS |= {"nxos": '"eth_inerr": "', "os9": "bit errors, ", "os10": "104 throttles\n     "}
ERRORS["enterprise_sonic"] = ERRORS["sonic"]


@pytest.mark.parametrize("nos", ERRORS)
def test_an_uplink_that_counts_errors_on_trial_is_lost(nos):
    """Catches frames that a link loses under the change; and old errors, or none told, held against it."""
    port, printed = PRINTED[nos.removeprefix("enterprise_")]
    errors = ERRORS[nos]
    raw = {label: {"stdout": text} for label, text in printed.items()}
    worse = {label: {"stdout": text.replace(errors, f"{errors}99")} for label, text in printed.items()}
    roce = intent()["roce"]
    before = general.error_free(nos, [port, "other"], raw, raw, roce)
    assert before == {f"uplink {port} free of new errors": "counted"} and worse != raw
    assert general.lost(general.error_free(nos, [port], raw, worse, roce), before) == list(before)
    assert general.error_free(nos, [port], worse, raw, roce) == before  # cleared meanwhile
    assert general.error_free(nos, [port], {}, {}, roce) == {}


SECRETS = """username admin secret sha512 $6$Zq7
enable secret 9 $9$Zq7
username a sha256-password Zq7
snmp-server host 10.1.1.1 traps version 2c Zq7
snmp-server user u g v3 auth sha512 Zq7 priv aes Zq7
radius-server host 10.1.1.1 auth-port 1812 key 9 Zq7
router bgp 65001 / neighbor 10.0.0.1 password 3 Zq7
ntp authentication-key 1 md5 Zq7 7
interface Vlan1 / hsrp 1 / authentication text Zq7
key chain a / key 1 / key-string 7 Zq7
daemon T / exec /usr/bin/TerminAttr -ingestauth=key,Zq7 -x
copy ftp://eve:Zq7@10.1.1.1/x
aaa x 7 Zq7822455D0A
snmp-server community-map Zq7 context x
snmp community-name Zq7
event-handler x / action bash curl -H "Authorization: Bearer Zq7Zq7Zq7" https://hook
event-handler x / action bash curl -H "Authorization: Basic Zq7Zq7Zq7==" https://hook
event-handler x / action bash curl -u admin:Zq7 https://hook
mac security / key-octet-string 0 Zq7
mac security / key 12 7 Zq7
key 1234 cryptographic-algorithm AES_128_CMAC key-octet-string 7 Zq7
username eve sshkey ssh-rsa Zq7
interface Vlan1 / authentication-type simple Zq7
area 0 authentication message-digest Zq7
ldap bind-pw Zq7
passwd Zq7"""


@pytest.mark.parametrize("line", SECRETS.splitlines())
def test_a_line_of_somebody_elses_is_told_without_its_secret(line):
    """Catches a key, a community or a password of a line that is named in a refusal or in the run folder."""
    (told,) = cli.unsaved(line, "hostname leaf1\n")[:1]
    assert "Zq7" not in told and "***" in told and told.split()[0] == line.split()[0]
    assert cli.masked("ip community-list X permit 65001:100") == "ip community-list X permit 65001:100"


def test_a_failure_tells_what_failed_and_no_configuration():
    """Catches a whole configuration, keys and all, as the reason why it was not read."""
    text = "hostname leaf1\nusername a secret 5 Zq7\n" * 40 + "banner x\n% Error in this banner: key Zq7\n"
    assert cli.told({"msg": text}, "") == "% Error in this banner: key ***"
    assert cli.told({"msg": "return code 1", "stderr": "no patch"}, "") == "return code 1 no patch"
    assert cli.told({"msg": "Token expired"}, "") == "Token expired"
    assert cli.told({"msg": '{"password": "Zq7"}'}, "") == '{"password ***'
    for text in (
        "config apply-patch: {'TACPLUS': {'global': {'passkey': 'Zq7'}}}",
        "ERROR 'auth_password': 'Zq7'",
        "[Warning] SNMP_COMMUNITY|Zq7 not found",
        '{"SNMP_COMMUNITY": {"Zq7": {"TYPE": "RO"}}}',
        '{"MACSEC_PROFILE": {"a": {"primary_cak": "Zq7"}}}',
        "Error: value 'Zq7' for readonly-community invalid",
        "nv set: 'Zq7' is no valid community",
        "Authorization: Basic Zq7Zq7Zq7==",
        "Connection to https://10.0.0.1?token=Zq7",
    ):
        told = cli.told({"msg": text}, "")
        assert "Zq7" not in told and "***" in told and told[:4] == text[:4], told
    assert cli.told({"msg": "Error: value '9000' of mtu is too large"}, "").endswith(
        "'9000' of mtu is too large"
    )
    assert cli.told({}, "the change failed") == "the change failed"
    loop = {"msg": "One or more items failed", "results": [{}, {"failed": True, "msg": "% Invalid input"}]}
    assert cli.told(loop, "") == "% Invalid input"
