"""Our slurm.conf refuses root's jobs where the site's jobs are an ordinary user's."""

import re
from pathlib import Path

import pytest
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
