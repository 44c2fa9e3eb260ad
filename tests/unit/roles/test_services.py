"""Services of the roles. In CI, Slurm's second converge is one without systemd (test_spaces_slurm.py)."""

import yaml

from tests.kit.site import CHECKOUT

MODULES = ("ansible.builtin.systemd_service", "ansible.builtin.systemd", "ansible.builtin.service")


def tasks(block):
    """All tasks of a list, also of its blocks."""
    for task in block or ():
        yield task
        for inner in ("block", "rescue", "always"):
            yield from tasks(task.get(inner))


def test_a_service_starts_anew_by_a_handler_alone():
    """Catches: a daemon that every converge restarts, though nothing changed."""
    files = sorted(CHECKOUT.glob("roles/*/tasks/*.yml"))
    found = [
        (path, task["name"], task[module].get("state"))
        for path in files
        for task in tasks(yaml.safe_load(path.read_text(encoding="utf-8")))
        for module in MODULES
        if module in task
    ]
    assert {"slurm", "munge"} <= {path.parts[-3] for path, _, _ in found}
    assert [one for one in found if one[2] in ("restarted", "reloaded")] == []
