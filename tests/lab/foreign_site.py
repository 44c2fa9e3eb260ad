"""What a person does on the foreign site: reads what discover wrote, and adds what nothing could tell."""

import hashlib
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from lab.acceptance import BIN, REQUIREMENTS
from lab.cluster import Lab
from lab.foreign.setup import USER
from lab.paths import CHECKOUT
from lab.remote import common_options

MACHINES = ("head", "n1", "n2", "leaf0")
STAGE = f"/scratch/{USER}/shakedown"
OWN = f"/scratch/{USER}/own"  # the user's own copy of Shakedown, on the login node
JOB = ("--account=bench", "--qos=accept", "--reservation=maint_nov")

# What is the site's: nothing of it may differ afterwards. Files with their modes and owners, packages, units.
_SUMS = """
find /etc /opt /usr/local /root /boot -xdev -type f -exec sha256sum {} +
find /etc /opt /usr/local /root -xdev -printf '%p %y %m %u %g %l\\n'
sha256sum /var/lib/dpkg/status
systemctl list-unit-files --no-legend --no-pager | grep -v ' transient '
"""
# The lab's profile, signed by this site for its own wire.
_PROFILE = CHECKOUT / "shakedown/references/profiles/lab.yml"
_ACCEPTANCE: dict[str, Any] = {
    "config": {"link_speed": False, "settings_reader": False, "traffic_class": None},
    "perftest": [
        {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 300, "rails_at_once": ["one", "all"]},
        {"test": "ib_send_lat", "size_bytes": 64, "iterations": 200},
    ],
    "mpi": {
        "transport": "tcp",
        "pingpong": {"min_bytes": 16384, "max_bytes": 65536, "iterations": 10},
        # As inventories/lab has it: over reliable connections of Soft-RoCE a rank may never end.
        "variables": {
            "OMPI_MCA_pml": "ucx",
            "OMPI_MCA_opal_common_ucx_tls": "any",
            "OMPI_MCA_opal_common_ucx_devices": "any",
            "OMPI_MCA_btl_tcp_if_include": "10.20.0.0/24",
            "PMIX_MCA_ptl_tcp_if_include": "10.20.0.0/24",
            "UCX_TLS": "tcp,self",
            "UCX_NET_DEVICES": "fab0",
        },
    },
    "measurement_timeout_s": 90,
    "qp_timeout": 19,
}
_SOFTWARE = {"perftest": {"from": "package"}, "openmpi": {"from": {"module": "openmpi/5.0.7"}}}


def sums(lab: Lab) -> dict[str, str]:
    """Return what is to stay as it is, machine by machine, as the lines that differ can be shown."""
    found = {}
    for machine in MACHINES:
        done = lab.ssh(machine, ["sh", "-c", _SUMS], timeout_s=600)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) > 500, "the checksums are of next to nothing"
        found[machine] = done.stdout
    return found


def digest(text: str) -> str:
    """Return the checksum of one machine's checksums."""
    return hashlib.sha256(text.encode()).hexdigest()


def as_user(lab: Lab, script: str, *, user: str = USER, given: str = "", timeout_s: float = 600) -> Any:
    """Run lines of shell on the login node as an ordinary user; return the ended process."""
    words = ["runuser", "-u", user, "--", "bash", "-c", f"cd /tmp; {script}"]
    return lab.ssh("head", words, timeout_s=timeout_s, input_text=given)


def install_for_user(lab: Lab, wheels: Path) -> None:
    """Put Shakedown where a user puts it: into a folder of their own, without root."""
    made = as_user(lab, f"mkdir -p {OWN}/wheels {OWN}/src")
    assert made.returncode == 0, made.stderr
    *shell, host = lab.ssh_argv("head")
    for source, into, options in (
        (f"{wheels}/", "wheels/", []),
        (f"{CHECKOUT / 'shakedown'}", "src/", ["--exclude=__pycache__"]),
        (f"{REQUIREMENTS}", "requirements.txt", []),
        (f"{BIN / 'uv'}", "uv", []),
    ):
        argv = ["rsync", "--recursive", "--copy-links", "--perms", *options, f"--rsh={shlex.join(shell)}"]
        argv += [f"--rsync-path=runuser -u {USER} -- rsync", source, f"{host}:{OWN}/{into}"]
        subprocess.run(argv, check=True, timeout=600, stdin=subprocess.DEVNULL)
    install = f"""
    cd {OWN}
    ./uv venv --quiet --no-project --system-site-packages --python /usr/bin/python3 venv
    ./uv pip install --quiet --no-config --no-cache --no-deps --require-hashes --no-index \
        --find-links=wheels --python venv/bin/python --requirement requirements.txt
    """
    done = as_user(lab, f"set -e; {install}", timeout_s=1200)
    assert done.returncode == 0, done.stdout + done.stderr


def shakedown_there(words: str) -> str:
    """Return the shell line that runs the user's own Shakedown on the login node."""
    return f"cd {OWN}; PYTHONPATH=src venv/bin/python -m {words}"


def connect(folder: Path, lab: Lab, user: str = USER) -> None:
    """Say how the controller reaches the machines: the lab's forwarded ports, as an ordinary user."""
    ports = {machine.name: machine.ssh_port for machine in lab.status().machines}
    (folder / "host_vars").mkdir(exist_ok=True)
    for name in ("head", "n1", "n2"):
        way = {"ansible_host": "127.0.0.1", "ansible_port": ports[name], "ansible_user": user}
        way |= {"ansible_ssh_private_key_file": str(lab.image.key)}
        way |= {"ansible_ssh_common_args": shlex.join(common_options(lab.paths))}
        (folder / f"host_vars/{name}.yml").write_text(yaml.safe_dump(way))


def read_and_add(folder: Path, wheels: Path) -> None:
    """Correct the guesses, take their marks away, and add software, programs to measure and a profile."""
    every = folder / "group_vars/all"
    for path, guess, truth in (
        (every / "fabric.yml", "link: 9216", "link: 9000"),
        (every / "fabric.yml", "profile: physical", "profile: theirs"),
        (every / "site.yml", "shared_stage_path: /scratch/shakedown", f"shared_stage_path: {STAGE}"),
    ):
        text = path.read_text()
        assert guess in text, (path, text)
        path.write_text(text.replace(guess, truth))
    for path in folder.rglob("*.yml"):
        lines = (line.partition("  # check")[0] for line in path.read_text().splitlines())
        path.write_text("\n".join(lines) + "\n")
    (every / "acceptance.yml").write_text(yaml.safe_dump({"acceptance": _ACCEPTANCE}))
    (every / "software.yml").write_text(yaml.safe_dump({"software": _SOFTWARE}))
    (every / "wheels.yml").write_text(yaml.safe_dump({"reframe_wheelhouse": str(wheels)}))
    (folder / "profiles").mkdir()
    signed = _PROFILE.read_text().replace("profile: lab\n", "profile: theirs\n", 1)
    (folder / "profiles/theirs.yml").write_text(signed.replace("system: lab", "system: theirs"))


def other(folder: Path, name: str, **block: str) -> Path:
    """Return a copy of the site whose `slurm` block says something else."""
    copy = folder.with_name(name)
    shutil.copytree(folder, copy)
    path = copy / "group_vars/all/site.yml"
    site = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**site, "slurm": {**site["slurm"], **block}}))
    return copy
