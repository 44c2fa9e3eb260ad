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
options:
  action: {choices: [check, apply, rollback], type: str, required: true, description: What to do.}
  program: {type: dict, required: true, description: Source files by name relative to the program's folder.}
  program_folder: {type: str, default: /usr/local/libexec/shakedown, description: Where the program lives.}
  desired: {type: dict, required: true, description: Desired states by target, written as JSON.}
  files: {type: dict, default: {}, description: Further text files by path.}
  settle_s: {type: int, default: 0, description: How long a check waits for everything to be as wanted.}
  root: {type: str, default: /, description: Prefix of all paths.}
author: [Shakedown]
"""

EXAMPLES = r"""
- host_settings:
    action: apply
    program: "{{ host_settings_program }}"
    desired: "{{ host_settings_desired }}"
"""

RETURN = r"""
targets: {type: list, returned: always, description: One report for each target, as host-settings prints it.}
wrong: {type: list, returned: always, description: What differs, with found and wanted.}
"""

Target = dict[str, Any]  # one report of host-settings
_DESIRED_FOLDER = "/etc/shakedown/settings"


def desired_files(desired: dict[str, Any], folder: str) -> dict[str, str]:
    """The desired states as files."""
    return {
        f"{folder}/{target}.json": json.dumps(state, indent=1, sort_keys=True) + "\n"
        for target, state in desired.items()
    }


def differing(files: dict[str, str], root: Path) -> dict[str, str]:
    """Path and present text of the files that are not as wanted."""
    found = {}
    for path, text in files.items():
        try:
            present = (root / path.lstrip("/")).read_text(encoding="utf-8")
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


def diff_of(targets: list[Target], files: dict[str, str], present: dict[str, str]) -> list[dict[str, str]]:
    """What changes, for --diff: files line by line, settings as found and wanted."""
    diff = [
        {"before_header": path, "after_header": path, "before": text, "after": files[path]}
        for path, text in present.items()
    ]
    for target in targets:
        if target["changes"]:
            found, wanted = (
                "".join(f"{c['key']}: {json.dumps(c[side])}\n" for c in target["changes"])
                for side in ("found", "wanted")
            )
            header = f"settings of {target['target']}"
            diff.append({"before_header": header, "after_header": header, "before": found, "after": wanted})
    return diff


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
    argv = [
        module.get_bin_path("python3", required=True),
        "-I",
        str(folder / "host-settings"),
        action,
        "--json",
    ]
    argv += ["--root", given["root"], "--desired", str(desired), "--settle", str(given["settle_s"])]
    argv += given["desired"]
    status, out, err = module.run_command(argv)
    if status not in (0, 1):
        module.fail_json(msg=err.strip() or f"host-settings ended with status {status}", rc=status)
    targets: list[Target] = json.loads(out)["targets"]
    return targets


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
    given = module.params
    if given["root"] == "/" and os.geteuid() != 0:
        module.fail_json(msg="settings need root on the host -- set ansible_become: true")
    root = Path(given["root"])
    program_folder = given["program_folder"]
    action = "check" if module.check_mode else given["action"]
    files = {
        **{f"{program_folder}/{name}": text for name, text in given["program"].items()},
        **desired_files(given["desired"], _DESIRED_FOLDER),
        **given["files"],
    }
    differs = differing(files, root)
    folder, desired = root / program_folder.lstrip("/"), root / _DESIRED_FOLDER.lstrip("/")
    if action == "apply":
        for path in differs:
            write(root / path.lstrip("/"), files[path])
    elif differs:
        # Nothing may be written there: the same program runs from elsewhere.
        folder = desired = Path(module.tmpdir)
        for name, text in {**given["program"], **desired_files(given["desired"], ".")}.items():
            write(folder / name, text)
    present = differs if given["action"] == "apply" else {}
    targets = run(module, folder, desired, action)
    changed = bool(present) or any(target["changes"] for target in targets)
    result = {
        "changed": changed and given["action"] != "check",
        "targets": targets,
        "wrong": [line for target in targets for line in wrong_settings(target)],
        "diff": diff_of(targets, files, present),
    }
    errors = [f"{target['target']}: {target['error']}" for target in targets if target["error"]]
    if action == "apply" and not errors:
        errors = [line for target in targets if not target["ok"] for line in wrong_settings(target)]
    if errors:
        module.fail_json(msg="; ".join(errors), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
