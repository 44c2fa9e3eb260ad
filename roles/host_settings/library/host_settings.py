#!/usr/bin/python
"""Install host-settings with wanted states on a host and run it; in check mode from a temporary folder."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: host_settings
short_description: Check, apply or roll back settings of a host
description:
  - Writes the program and the desired states that differ, then runs the program once for all targets.
  - In check mode nothing is written; the same program runs from a temporary folder and only compares.
  - The action check fails if a setting is not as wanted, and says which.
options:
  action: {choices: [check, apply, rollback], type: str, required: true, description: What to do.}
  program:
    type: dict
    required: true
    description: Source files by name relative to the program's folder; the action plugin adds them.
  program_folder: {type: str, default: /usr/local/libexec/shakedown, description: Where the program lives.}
  desired: {type: dict, required: true, description: Desired states by target, written as JSON.}
  files:
    type: dict
    default: {}
    description: Further text files by path; a rollback removes them. The action plugin adds units.
  settle_s: {type: int, default: 0, description: How long a check waits for everything to be as wanted.}
  root: {type: str, default: /, description: Prefix of all paths.}
author: [Shakedown]
"""

EXAMPLES = r"""
- host_settings:
    action: apply
    desired: "{{ host_settings_desired }}"
"""

RETURN = r"""
rows: {type: list, returned: always, description: "What changes, as what, from, to and whose."}
targets: {type: list, returned: with -v, description: One report for each target, as host-settings prints it.}
wrong: {type: list, returned: always, description: What differs, with found and wanted.}
"""

Target = dict[str, Any]  # one report of host-settings
_DESIRED_FOLDER = "/etc/shakedown/settings"
_UNITS = "/etc/systemd/system/host-settings"
_MOUNTS = "/etc/systemd/system/run-shakedown"
# Who reads the files must be told when one has changed, where it runs: sd_booted(3), and the socket of udev.
# A host without either, such as a bare GPU server, has nobody to tell.
_AFTER_FILES = (
    ("run/systemd/system", ["systemctl", "daemon-reload"]),
    ("run/udev/control", ["udevadm", "control", "--reload"]),
)


def desired_files(desired: dict[str, Any], folder: str) -> dict[str, str]:
    """The desired states as files."""
    return {
        f"{folder}/{target}.json": json.dumps(state, indent=1, sort_keys=True) + "\n"
        for target, state in desired.items()
    }


def told_of_files(root: Path) -> list[list[str]]:
    """The commands that tell what runs here of changed files."""
    return [argv for sign, argv in _AFTER_FILES if (root / sign).exists()]


def under(root: Path, path: str) -> Path:
    """The place of an absolute path under a prefix."""
    return root / path.lstrip("/")


def differing(files: dict[str, str], root: Path) -> dict[str, str]:
    """Path and present text of the files that are not as wanted."""
    found = {}
    for path, text in files.items():
        try:
            present = under(root, path).read_text(encoding="utf-8")
        except FileNotFoundError:
            present = ""
        if present != text:
            found[path] = present
    return found


def write(path: Path, text: str) -> None:
    """Replace a file: written aside, then renamed. What starts with #! can be run."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".host-settings.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        handle.write(text)
    aside = Path(name)
    aside.chmod(0o755 if text.startswith("#!") else 0o644)
    aside.replace(path)


def of_a_program(path: str, program_folder: str) -> bool:
    """Whether a file is of the program or its units, or holds the wanted states that it shows as settings."""
    return path.startswith((f"{program_folder}/", f"{_DESIRED_FOLDER}/", _UNITS, _MOUNTS))


def diff_of(
    targets: list[Target], files: dict[str, str], present: dict[str, str], program_folder: str
) -> list[dict[str, str]]:
    """What changes, for --diff: files line by line, settings as found and wanted, the program in one line."""
    diff = [
        {"before_header": path, "after_header": path, "before": text, "after": files[path]}
        for path, text in present.items()
        if not of_a_program(path, program_folder)
    ]
    if ours := [path for path in present if of_a_program(path, program_folder)]:
        where = f"{program_folder}, {_UNITS}* and {_DESIRED_FOLDER}"
        diff.append({"prepared": f"files of Shakedown in {where} that differ: {len(ours)}\n"})
    for target in targets:
        if target["changes"]:
            found, wanted = (
                "".join(f"{c['key']}: {json.dumps(c[side])}\n" for c in target["changes"])
                for side in ("found", "wanted")
            )
            header = f"settings of {target['target']}"
            diff.append({"before_header": header, "after_header": header, "before": found, "after": wanted})
    return diff


def rows_of(targets: list[Target], present: dict[str, str], program_folder: str) -> list[dict[str, str]]:
    """What changes on this host and whose it is, for the table of all hosts: what, from, to, whose."""
    rows = [
        {
            "what": f"{target['target']} {change['key']}",
            "from": json.dumps(change["found"]),
            "to": json.dumps(change["wanted"]),
            "whose": "Shakedown's, changed since" if change.get("ours") else "the site's",
        }
        for target in targets
        for change in target["changes"]
    ]
    files = [path for path in present if not of_a_program(path, program_folder)]
    if len(files) < len(present):
        what = f"program, units and wanted states: {program_folder}"
        rows.append({"what": what, "from": "older or none", "to": "this release's", "whose": "Shakedown's"})
    for path in files:
        found = "differs" if present[path] else "not there"
        rows.append({"what": path, "from": found, "to": "written", "whose": "Shakedown's"})
    return rows


def wrong_settings(target: Target) -> list[str]:
    """The settings that are not as wanted."""
    return [
        f"{target['target']} {s['key']}: found {json.dumps(s['found'])}, wanted {json.dumps(s['wanted'])}"
        for s in target["settings"]
        if not s["ok"]
    ]


def run(module: AnsibleModule, folder: Path, desired: Path, action: str) -> list[Target]:
    """Run the program for all targets: its reports. Fails the module if the program refuses."""
    given = module.params
    argv = [module.get_bin_path("python3", required=True), "-I", str(folder / "host-settings"), action]
    argv += [*given["desired"], "--json", "--root", given["root"], "--desired", str(desired)]
    argv += ["--settle", str(given["settle_s"])]
    status, out, err = module.run_command(argv)
    if status not in (0, 1):
        module.fail_json(msg=err.strip() or f"host-settings ended with status {status}", rc=status)
    targets: list[Target] = json.loads(out)["targets"]
    return targets


def run_unwritten(module: AnsibleModule, action: str) -> list[Target]:
    """Run the program without writing it or wanted states where they live; from there if they are there."""
    given, root = module.params, Path(module.params["root"])
    program, desired = given["program_folder"], desired_files(given["desired"], _DESIRED_FOLDER)
    if not differing({f"{program}/{name}": text for name, text in given["program"].items()} | desired, root):
        return run(module, under(root, program), under(root, _DESIRED_FOLDER), action)
    folder = Path(module.tmpdir)
    for name, text in {**given["program"], **desired_files(given["desired"], ".")}.items():
        write(folder / name, text)
    return run(module, folder, folder, action)


def apply(module: AnsibleModule, files: dict[str, str], root: Path) -> tuple[list[Target], dict[str, str]]:
    """Write the files that differ and set what differs: reports, and the files' former text.

    Looks first, so that whatever must be refused is refused before anything is written.
    """
    differs = differing(files, root)
    if differs or module.check_mode:
        targets = run_unwritten(module, "check")
    if not module.check_mode:
        for path in differs:
            write(under(root, path), files[path])
        folder = under(root, module.params["program_folder"])
        targets = run(module, folder, under(root, _DESIRED_FOLDER), "apply")
    return targets, differs


def roll_back(
    module: AnsibleModule, files: dict[str, str], root: Path
) -> tuple[list[Target], dict[str, str]]:
    """Restore settings and remove the files, but not the program: reports, and the files' former text."""
    targets = run_unwritten(module, "rollback-check" if module.check_mode else "rollback")
    present = {path: under(root, path).read_text() for path in files if under(root, path).exists()}
    if not module.check_mode and not any(target["error"] for target in targets):
        for path in present:
            under(root, path).unlink()
    return targets, present


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "action": {"choices": ["check", "apply", "rollback"], "required": True},
            "program": {"type": "dict", "required": True},
            "program_folder": {"default": "/usr/local/libexec/shakedown"},
            "desired": {"type": "dict", "required": True},
            "files": {"type": "dict", "default": {}},
            "settle_s": {"type": "int", "default": 0},
            "root": {"default": "/"},
        },
        supports_check_mode=True,
        no_log=True,  # keeps the program's text out of the host's log; nothing here is secret
    )
    given, action = module.params, module.params["action"]
    if given["root"] == "/" and os.geteuid() != 0:
        module.fail_json(msg="settings need root on the host -- set ansible_become: true")
    root = Path(given["root"])
    wanted = {**desired_files(given["desired"], _DESIRED_FOLDER), **given["files"]}
    after: dict[str, str] = {}
    if action == "check":
        targets, before = run_unwritten(module, "check"), {}
    elif action == "apply":
        program = {f"{given['program_folder']}/{name}": text for name, text in given["program"].items()}
        after = {**program, **wanted}
        targets, before = apply(module, after, root)
    else:
        targets, before = roll_back(module, wanted, root)
        after = dict.fromkeys(before, "")
    if before and not module.check_mode and given["root"] == "/":
        for argv in told_of_files(Path("/")):
            module.run_command(argv, check_rc=True)
    result = {
        "changed": action != "check" and (bool(before) or any(target["changes"] for target in targets)),
        # Every setting of every host, only if it is going to be printed.
        **({"targets": targets} if module._verbosity else {}),
        "wrong": [line for target in targets for line in wrong_settings(target)],
        "rows": rows_of(targets, before, given["program_folder"]),
        "diff": diff_of(targets, after, before, given["program_folder"]),
        # Not the sources of the program, which Ansible would send back and keep in the log of each host.
        "invocation": {"module_args": {"action": action, "root": given["root"]}},
    }
    errors = [f"{target['target']}: {target['error']}" for target in targets if target["error"]]
    if action == "apply" and not module.check_mode and not errors:
        errors = [line for target in targets if not target["ok"] for line in wrong_settings(target)]
    if action == "check" and not errors:
        errors = result["wrong"]
    if errors:
        module.fail_json(msg="; ".join(errors), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
