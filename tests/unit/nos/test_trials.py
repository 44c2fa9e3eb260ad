"""Trials that are pending, undone or about to be saved: whose lines they are."""

import json
import os

import pytest
from rendering import cli, enterprise, nvue
from rendering import general as switch
from rendering import sonic_change as sonic

from tests.switches.cli_device import LOG_LINES

OLD = "hostname leaf1\ninterface e1\n   mtu 1500\n   qos trust cos\n"
WANTED = "qos profile ROCE\n   qos trust dscp\ninterface e1\n   mtu 9000\n   service-profile ROCE\n"
OWNED = ["^interface e1 / (qos|service-profile)", "^qos profile ROCE /"]
TRIAL = "hostname leaf1\n" + WANTED


@pytest.mark.parametrize(
    ("change", "stays", "left"),
    [
        (
            ("hostname leaf1", "hostname other\nvlan 7"),
            "no mtu 9000",
            ["hostname other", "vlan 7", "no hostname leaf1"],
        ),
        (("mtu 9000", "mtu 4000"), "no service-profile ROCE", ["interface e1 / mtu 4000"]),
        (
            ("service-profile ROCE", "service-profile VOICE"),
            "no mtu 9000",
            ["interface e1 / service-profile VOICE"],
        ),
        (
            ("qos trust dscp", "qos trust dscp\n   weight 3"),
            "no qos trust dscp",
            ["qos profile ROCE / weight 3"],
        ),
    ],
)
def test_only_lines_that_still_stand_as_typed_are_taken_back(change, stays, left):
    """Catches another admin's lines undone with ours, kept unnamed, or told with their secret."""
    undo = cli.undo(OLD, TRIAL.replace(*change), WANTED, OWNED)
    assert undo["left"] == left
    assert stays in undo["commands"]
    assert not [
        line
        for line in undo["commands"]
        if any(word in line for word in ("4000", "VOICE", "vlan", "hostname"))
    ]
    assert ("mtu 1500" in undo["commands"]) == ("4000" not in change[1])
    assert ("no qos profile ROCE" in undo["commands"]) == ("weight" not in change[1])


def test_what_the_switch_stored_otherwise_is_ours_and_a_change_after_it_is_not():
    """Catches a value stored without a word that stays, or that is taken for another admin's."""
    stored = TRIAL.replace("9000", "2000")
    assert cli.undo(OLD, stored, WANTED, OWNED, stored)["left"] == []
    assert "no mtu 2000" in cli.undo(OLD, stored, WANTED, OWNED, stored)["commands"]
    assert cli.undo(OLD, stored, WANTED, OWNED, TRIAL)["left"] == ["interface e1 / mtu 2000"]


def test_the_trial_of_nxos_is_no_change_of_anybody():
    """Catches the role's own scheduler lines taken for somebody's unsaved work, printed indented or not."""
    job = "scheduler job name shakedown-undo\nrollback running-config checkpoint shakedown-1\n\nend-job\n\n"
    schedule = (
        "scheduler schedule name shakedown-undo\n  job name shakedown-undo\n  time start 2026:11:28:03:00\n"
    )
    assert cli.undo(OLD, "feature scheduler\n" + job + schedule + TRIAL, WANTED, OWNED)["left"] == []


def sessions(**states):
    """EOS's sessions, as JSON."""
    who = {"instances": {"7": {"user": "eve"}}}
    return {"sessions": json.dumps({"sessions": {n: {"state": s, **who} for n, s in states.items()}})}


LOGGED = [
    *LOG_LINES.values(),
    "*Nov 23 12:00:01.123: %LINK-3-UPDOWN: Interface x",
    "2026 Nov 23 12:00:01 leaf1 %$ VDC-1 %$ %ETHPORT-5-IF_UP: Interface x is up",
    "1d2h3m: %STKUNIT0-M:CP %SYS-5-CONFIG_I: Configured from vty0",
    "%STKUNIT0-M:CP %SYS-5-CONFIG_I: Configured from vty0",
    "2026-11-23T12:00:01+00:00 leaf1 Ebra: %LINEPROTO-5-UPDOWN: x",
    "Broadcast message from root@leaf1 (Mon Nov 23):",
]
LINES = [
    "event-handler UP\n   trigger on-logging\n      regex %LINEPROTO-5-UPDOWN: .*Ethernet49",
    "event manager applet UP\n  event syslog pattern %ETHPORT-5-IF_UP: Ethernet1/49",
    "logging filter %IFMGR-5-OSTATE_DN: x",
    "alias log1 show logging | grep Nov 23 12:00:01 leaf1 %SYS-5-CONFIG_I:",
]


@pytest.mark.parametrize(("line", "seen"), [*((one, 0) for one in LOGGED), *((one, 1) for one in LINES)])
def test_only_what_begins_as_a_line_of_the_log_is_one(line, seen):
    """Catches another's event handler saved unseen, and a port's flap taken for a change of somebody's."""
    above, _, line = line.rpartition("\n")
    whole = f"hostname leaf1\ninterface Ethernet1\n   mtu 9000\n{above}\n"
    assert bool(cli.unsaved(f"{whole}{line}\n", whole)) == bool(seen)
    assert bool(cli.undo(whole, f"{whole}{line}\n", "", [])["left"]) == bool(seen)


def logged(told):
    """The same with a line of the log before it, as a terminal shows one."""
    return {what: f"{LOG_LINES['eos']}\n{text}" for what, text in told.items()}


OURS, THEIRS = "shakedown-20261129-site-1", "shakedown-20261129-site-2"
ELSEWHERE = "the one of a run on site-2 (if that run is gone, and its timer: rm roce-trial.owner)"
BEGUN = f"{THEIRS}, begun or left by another run ({{}})"
SCHEDULED = """feature scheduler
scheduler job name {job}
  {does}
end-job

scheduler schedule name {job}
  job name {job}
  time start 2026:11:28:03:00
"""


def scheduled(job, does):
    """NX-OS's running configuration with one job, and what the scheduler and the checkpoints tell."""
    text = f"Schedule Name       : {job}\n-----\nUser Name           : eve\n"
    kept = f"1) {OURS}:\nCreated by admin\n2) mine:\nCreated by eve\n"
    return {"running": SCHEDULED.format(job=job, does=does), "schedules": text, "checkpoints": kept}


@pytest.mark.parametrize(
    ("nos", "told", "own", "strangers", "litter"),
    [
        ("eos", {"sessions": ""}, "", [], []),
        ("eos", sessions(shop="pendingCommitTimer"), "", ["shop of eve"], []),
        ("eos", logged(sessions(a="pendingCommitTimer")), "", ["a of eve"], []),
        ("eos", sessions(shop="pending", old="completed"), "", [], []),
        ("eos", sessions(**{OURS: "pendingCommitTimer"}), OURS, [], []),
        ("eos", sessions(**{OURS: "pending"}), "", [], [f"configure session {OURS} abort"]),
        ("eos", sessions(**{THEIRS: "pendingCommitTimer"}), "", [f"{THEIRS} of eve"], []),
        ("eos", sessions(**{THEIRS: "pending"}), "", [BEGUN.format(f"configure session {THEIRS} abort")], []),
        ("nxos", scheduled("shakedown-undo", f"rollback running-config checkpoint {OURS}"), OURS, [], []),
        (
            "nxos",
            scheduled("shakedown-undo", f"rollback running-config checkpoint {THEIRS}"),
            "",
            [f"{THEIRS} of eve"],
            [f"no checkpoint {OURS}"],
        ),
        (
            "nxos",
            {"running": "", "schedules": "", "checkpoints": f"1) {THEIRS}:\nCreated by eve\n"},
            "",
            [BEGUN.format(f"no checkpoint {THEIRS}")],
            [],
        ),
        (
            "nxos",
            scheduled("night", "rollback running-config checkpoint mine"),
            "",
            ["night of eve"],
            [f"no checkpoint {OURS}"],
        ),
        ("nxos", scheduled("night", "copy running-config tftp://a/b"), "", [], [f"no checkpoint {OURS}"]),
    ],
)
def test_a_pending_trial_is_found_and_its_owner_told(nos, told, own, strangers, litter):
    """Catches a timer unseen, a backup taken for one, another machine's trial confirmed or aborted."""
    assert cli.pending(nos, told, "site-1") == {"own": own, "strangers": strangers, "litter": litter}


@pytest.mark.parametrize(
    ("printed", "own", "strangers"),
    [
        ("logrotate.timer loaded active waiting Daily rotation of log files\nconfig_db.json", "", []),
        (
            "run-r1.timer loaded active waiting /bin/sh -c config reload -y",
            "",
            ["timer run-r1 (config reload)"],
        ),
        ("a.timer loaded active waiting config load_mg", "", ["timer a (config load_mg)"]),
        ("a.timer loaded active waiting /sbin/shutdown -r now", "", ["timer a (shutdown)"]),
        ("process-reboot-cause.timer loaded active waiting Delays process-reboot-cause", "", []),
        (
            "shakedown-undo.timer loaded active waiting sh -c x\nroce-trial.json\nbefore-roce.json",
            "shakedown-undo",
            [],
        ),
        (
            "shakedown-undo.timer loaded active waiting sh -c x",
            "",
            ["timer shakedown-undo, without its record"],
        ),
        ("roce-trial.json\nbefore-roce.json\nowner=site-1", "shakedown-undo", []),
        ("owner=site-1", "", []),
        ("roce-trial.json\nbefore-roce.json\nowner=site-2", "", [ELSEWHERE]),
        ("shakedown-undo.timer loaded active waiting sh -c x\nowner=site-2", "", [ELSEWHERE]),
    ],
)
def test_a_timer_on_sonic_is_found_by_what_it_does(printed, own, strangers):
    """Catches another admin's timed reload unseen, and a timer of the system's refused."""
    assert sonic.pending(printed, "site-1") == {"own": own, "strangers": strangers, "litter": []}


def test_a_switch_is_taken_by_one_run_of_a_machine(tmp_path, monkeypatch):
    """Catches two runs at one switch, a run that ended and bars it, and one elsewhere taken for ended."""
    link = tmp_path / "switch"
    taken = {"held": "", "ended": False}
    assert switch.claim(str(link)) == switch.claim(str(link)) == taken
    ours = str(link.readlink())
    with monkeypatch.context() as other:
        other.setattr("os.getppid", os.getpid)
        assert ours in switch.claim(str(link))["held"] and not switch.unclaim(str(link))
    for holder, held in (
        (ours.replace(ours.split()[1], "4194999"), False),
        (ours.replace(ours.rsplit(maxsplit=1)[-1], "1"), False),  # its number is another's now
        (ours.replace(ours.split()[5], "site-2").replace(ours.split()[1], "4194999"), True),
    ):
        link.unlink()
        link.symlink_to(holder)
        claim = switch.claim(str(link))
        assert (bool(claim["held"]), claim["ended"]) == (held, not held), claim
        assert (str(link.readlink()) == holder) == held
    link.unlink()
    assert switch.claim(str(link)) == taken and switch.unclaim(str(link)) and not link.is_symlink()


@pytest.mark.parametrize(
    ("timer", "unknown"),
    [
        (
            "run-r12.timer loaded active waiting /bin/bash /root/back.sh",
            ["run-r12 (/bin/bash /root/back.sh)"],
        ),
        ("run-u1.timer loaded active waiting [systemd-run] /root/x", ["run-u1 ([systemd-run] /root/x)"]),
        (
            "mine.timer loaded active waiting /usr/local/bin/sonic-installer set-default x",
            ["mine (/usr/local/bin/sonic-installer set-default x)"],
        ),
        ("run-r1.timer loaded active waiting /bin/sh -c config reload -y", []),
        ("logrotate.timer loaded active waiting Daily rotation of log files", []),
        ("shakedown-undo.timer loaded active waiting /bin/sh -c x", []),
    ],
)
def test_a_timer_of_a_script_is_said_as_unknown(timer, unknown):
    """Catches somebody's way back, hidden in a script, passed over without a word."""
    assert sonic.unknown_timers(f"{timer}\nconfig_db.json\n") == unknown


def test_on_sonic_only_our_rows_go_back():
    """Catches an undo that takes another admin's VLAN, or his field of a row of ours, and a secret told."""
    old = {"PORT": {"Ethernet0": {"mtu": "9100", "speed": "1"}}, "SNMP_COMMUNITY": {"public": {}}}
    wanted = {"PORT": {"Ethernet0": {"mtu": "9000"}}, "DSCP_TO_TC_MAP": {"ROCE": {"26": "3"}}}
    now = {
        "PORT": {"Ethernet0": {"mtu": "9000", "speed": "2"}},
        "SNMP_COMMUNITY": {"Zq7": {}},
        "DSCP_TO_TC_MAP": {"ROCE": {"26": "3"}, "X": {"26": "3"}},
        "VLAN": {"Vlan7": {}},
        "BUFFER_PG": {f"Ethernet{n}|3": {"profile": "pg_lossless_1_5m_profile"} for n in (0, 4)},
    }
    wanted["BUFFER_PG"] = {"Ethernet0|3": {"profile": "pg_lossless_1_5m_profile"}}
    undo = sonic.undo(now, old, wanted)
    assert undo["left"] == ["DSCP_TO_TC_MAP|X", "PORT|Ethernet0 speed", "SNMP_COMMUNITY", "VLAN"]
    assert undo["target"]["PORT"]["Ethernet0"] == {"mtu": "9100", "speed": "2"}
    assert undo["target"]["DSCP_TO_TC_MAP"] == {"X": {"26": "3"}}
    assert undo["target"]["VLAN"] == now["VLAN"]
    assert list(undo["target"]["BUFFER_PG"]) == ["Ethernet4|3"]  # which buffermgrd wrote by itself
    # As the switch stored it at once: ours, under another name.
    stored = {"DSCP_TO_TC_MAP": now["DSCP_TO_TC_MAP"]}
    assert "DSCP_TO_TC_MAP" not in sonic.undo(now, old, wanted, stored)["target"]


def test_on_cumulus_only_our_leaves_go_back():
    """Catches another admin's VLAN undone, a range printed anew called a change, and a secret told."""
    old = {"interface": {"swp1-3": {"link": {"mtu": 9216}}, "eth0": {"ip": {"address": {"10.0.0.1/24": {}}}}}}
    wanted = {"qos": {"roce": {"mode": "lossless"}}, "interface": {"swp1": {"link": {"mtu": 9000}}}}
    now = {
        "qos": {"roce": {"mode": "lossless"}},
        "interface": {
            "swp1": {"link": {"mtu": "9000"}},
            "swp2-3": {"link": {"mtu": 9216}},
            "eth0": old["interface"]["eth0"],
        },
    }
    undo = nvue.undo([{"set": now}], [{"header": {}}, {"set": old}], wanted, [])
    assert undo == {
        "patch": [
            {"unset": {"qos": {"roce": {"mode": {}}}}},
            {"set": {"interface": {"swp1": {"link": {"mtu": 9216}}}}},
        ],
        "left": [],
    }
    now["system"] = {"aaa": {"user": {"eve": {"hashed-password": "Zq7"}}}}
    undo = nvue.undo([{"set": now}], [{"set": old}], wanted, [])
    assert undo["left"] == ["system.aaa.user.eve.hashed-password"]
    assert "system" not in str(undo["patch"])
    agent = {"readonly-community": {"Zq7": {"access": {"any": {}}}}, "enable": "on"}
    agent |= {"trap-destination": {"10.0.0.1": {"community-password": {"Zq7": {}}}}}
    now["system"] = {"snmp-server": agent, "ssh": {"authorized-key": {"Zq7": {"key": "Zq7"}}}}
    assert nvue.undo([{"set": now}], [{"set": old}], wanted, [])["left"] == [
        "system.snmp-server.enable",
        "system.snmp-server.readonly-community.***",
        "system.snmp-server.trap-destination.10.0.0.1.community-password.***",
        "system.ssh.authorized-key.***",
    ]


@pytest.mark.parametrize(
    ("message", "own", "strangers"),
    [
        ("shakedown on site-1", "7", []),
        ("vlan", "", ["revision 7 of eve"]),
        ("shakedown on site-2", "", ["revision 7 of eve (shakedown on site-2)"]),
    ],
)
def test_a_revision_that_waits_for_its_confirmation_is_found(message, own, strangers):
    """Catches NVUE's timer unseen, or another admin's trial confirmed as ours."""
    waits = {"state": "confirm", "transition": {}, "apply-meta": {"user": "eve", "message": message}}
    assert nvue.pending({"1": {"state": "applied"}, "7": waits}, "site-1") == {
        "own": own,
        "strangers": strangers,
        "litter": [],
    }


def test_on_enterprise_sonic_a_value_set_meanwhile_is_left():
    """Catches another admin's MTU set back with ours."""
    wanted = {"mtu e1": 9000, "mtu e2": 9000, "mtu e3": 9000, "roce": True}
    old = {"found": {"mtu e1": 9100, "mtu e2": 9100, "mtu e3": 9100}}
    assert enterprise.left(
        {"wanted": wanted, "found": {"mtu e1": 9000, "mtu e2": 4000, "mtu e3": 9100}}, old
    ) == ["mtu e2"]
