"""Our slurm.conf refuses root's jobs where the site's jobs are an ordinary user's."""

import re
from pathlib import Path

import pytest
import yaml
from jinja2 import Environment

TEMPLATE = Path(__file__).parents[3] / "roles/slurm/templates/slurm.conf.j2"


@pytest.mark.parametrize(
    ("block", "refused"),
    [({"slurm": {"run_as": "bench"}}, True), ({"slurm": {"run_as": "root"}}, False), ({"slurm": {}}, False)],
)
def test_root_has_no_jobs_where_they_are_an_ordinary_users(block, refused):
    """Catches: root of one node that is root of all by srun; a lab, whose jobs are root's, that runs none."""
    (part,) = re.findall(r"{% if [^%]*run_as.*?{% endif %}\n", TEMPLATE.read_text(), flags=re.DOTALL)
    text = Environment(autoescape=True).from_string(part).render(block)
    assert ("\nDisableRootJobs=YES\n" in text) == refused


def test_folders_that_root_reads_belong_to_root():
    """Catches: an ordinary user who owns /etc/shakedown, of which every login shell of root reads a file."""
    found = []
    for file in sorted((Path(__file__).parents[3] / "roles").glob("*/tasks/*.yml")):
        waiting = list(yaml.safe_load(file.read_text()) or ())
        while waiting:
            task = waiting.pop()
            waiting += [inner for key in ("block", "rescue", "always") for inner in task.get(key, ())]
            made = task.get("ansible.builtin.file", {})
            if made.get("state") != "directory":
                continue
            items = task["loop"] if isinstance(task.get("loop"), list) else [{}]
            for item in items:
                here = item if isinstance(item, dict) else {"": item}
                values = {"{{ item }}": str(here.get("", "")), "{{ item.path }}": str(here.get("path", ""))}
                path = values.get(made["path"], made["path"])
                owner = (
                    here.get("owner", made.get("owner"))
                    if "item" in str(made.get("owner"))
                    else made.get("owner")
                )
                if re.search(r"^/etc|config_dir", path) and owner not in (None, "root"):
                    found.append((file.parts[-3], path, owner))
    # As Debian's own package has it: munged reads its key there, and root reads nothing.
    assert found == [("munge", "/etc/munge", "munge")]
