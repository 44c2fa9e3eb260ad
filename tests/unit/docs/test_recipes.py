"""The recipes of docs/how-to, carried out. That of a benchmark is in test_one_folder.py."""

import json
import re
import shutil

import pytest
import yaml

from tests.kit.house import House
from tests.kit.run import python
from tests.kit.site import CHECKOUT, fabric, plan_site, with_nics

HOW_TO = CHECKOUT / "docs/how-to"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of Shakedown that all recipes here change, each elsewhere."""
    return House(tmp_path_factory.mktemp("house"))


def test_a_reference_is_one_entry_in_one_file(tmp_path):
    """Catches: an example of the page that is no entry, or that a plan of such a site does not find."""
    (entry,) = re.findall(r"```yaml\n(.*?)```", (HOW_TO / "add-a-reference.md").read_text(), re.S)
    profile = yaml.safe_load((CHECKOUT / "reframe_tests/references/lab.yml").read_text())
    file = tmp_path / "mine.yml"
    file.write_text(yaml.safe_dump(profile | {"profile": "mine"} | yaml.safe_load(entry), sort_keys=False))
    asked = {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 9}
    site = with_nics(fabric(system="mine", profile="mine"), ("n1", "n2"), acceptance={"perftest": [asked]})
    plan, _ = plan_site(site, [file])
    names = {item.reference for item in plan.items if item.metric == "bandwidth"}
    assert names == {"write-bw-400g"}


_SYSTEM = '''"""An invented system."""

from shakedown.nos.system import SwitchSystem

SYSTEM = SwitchSystem(name="junos", tells=frozenset())
'''


@pytest.mark.slow
def test_a_switch_system_may_leave_out_all_but_its_name_and_what_it_tells(house):
    """Catches: a system that a file, an import and a line do not make known, or that is asked in vain."""
    house.write("nos/junos.py", _SYSTEM)
    house.edit("nos/registry.py", "import cumulus, ", "import cumulus, junos, ")
    house.edit("nos/registry.py", "        linux.SYSTEM,\n", "        linux.SYSTEM,\n        junos.SYSTEM,\n")
    told = house.run(
        "-c",
        "from shakedown.nos.registry import SYSTEMS, counters_of\n"
        "from shakedown.records.reading import BadInput\n"
        "print(SYSTEMS['junos'].can_tell('cabling'))\n"
        "try: counters_of('junos')\n"
        "except BadInput as error: print(error.what)",
    )
    assert told.splitlines() == ["False", "no counters are read from switch system 'junos'"]


_SECTION = '''"""How many nodes there are."""

from dataclasses import dataclass

from shakedown.report.source import ReportSource


@dataclass(frozen=True)
class Crowd:
    """The section."""

    nodes: tuple[str, ...]


def build_crowd(source: ReportSource) -> Crowd | None:
    """Return the section; None for a run without nodes."""
    return Crowd(tuple(source.plan.nodes)) if source.plan.nodes else None
'''
_PAGE = """
from shakedown.report import html
from synthetic_run import judged, make_plan
page = html.render_html(html.build(judged(make_plan(2, 1))), {})
print(page[page.index("<h2>Crowd"):][:80])
"""


@pytest.mark.slow
def test_a_report_section_is_a_file_a_template_a_field_and_a_line(house):
    """Catches: a section that needs more than the page says to be drawn."""
    house.write("report/crowd.py", _SECTION)
    templates = house.package / "report/templates"
    (templates / "crowd.html.j2").write_text("<h2>Crowd of {{ view.crowd.nodes|join(', ') }}</h2>\n")
    page = "report/html.py"
    for line, becomes in (
        ("import heatmaps, tables, ", "import crowd, heatmaps, tables, "),
        ("    timing: Timing | None\n", "    timing: Timing | None\n    crowd: crowd.Crowd | None\n"),
        (
            "        checksum=checksum,\n",
            "        checksum=checksum,\n        crowd=crowd.build_crowd(source),\n",
        ),
    ):
        house.edit(page, line, becomes)
    line = '{% include "figures.html.j2" %}\n'
    house.edit("report/templates/report.html.j2", line, line + '{% include "crowd.html.j2" %}\n')
    assert house.run("-c", _PAGE).startswith("<h2>Crowd of n1, n2</h2>")


_ON_A_HOST = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
sys.path.insert(1, sys.argv[2])
import conftest
host = conftest.Host(Path(sys.argv[3]), "ionic")
told = {action: host(action)["ok"] for action in ("check", "apply")}
done = len(host.done)
again = host("apply")
print(json.dumps({**told, "again": again["ok"], "more": len(host.done) - done}))
"""


@pytest.mark.slow
def test_a_nic_driver_is_a_file_a_line_and_a_recorded_host(tmp_path):
    """Catches: a driver that a file and its line do not make known, or tests that only know three drivers."""
    program, tests = tmp_path / "files", tmp_path / "tests"
    shutil.copytree(CHECKOUT / "roles/host_settings/files", program)
    shutil.copytree(CHECKOUT / "tests/unit/roles/host_settings", tests)
    rules = program / "host_settings"
    shutil.copy(rules / "mlx5.py", rules / "ionic.py")
    drivers = (rules / "drivers.py").read_text()
    drivers = drivers.replace("import bnxt, mlx5", "import bnxt, ionic, mlx5")
    (rules / "drivers.py").write_text(drivers.replace("    # Virtual", '    "ionic": ionic,\n    # Virtual'))
    record = (tests / "nics/connectx7_inbox.yaml").read_text()
    (tests / "nics/ionic.yaml").write_text(record.replace("mlx5_core", "ionic"))
    done = python("-c", _ON_A_HOST, program, tests, tmp_path, cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"check": False, "apply": True, "again": True, "more": 0}
