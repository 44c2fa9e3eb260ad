"""An ordered run in the virtual cluster: each node signs with its own key, no node writes the programs."""

import json
import subprocess

import pytest
from conftest import NAME, converged, inventory_with

from lab.acceptance import BIN, environment
from tests.kit.key import make_key, make_signers
from tests.kit.run import ran

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

MACHINES = ("n1", "n2", "head")
ACCEPTANCE = {
    "config": {"link_speed": False, "targets": ["environment"]},
    "perftest": [{"test": "ib_write_bw", "size_bytes": 65536, "iterations": 300}],
    "measurement_timeout_s": 90,
    "qp_timeout": 19,
}
# The machines are of one image, and so have one host key; an order refuses machines that do. SSH goes on with
# that one, under another name, and each machine signs with a new one.
OWN_KEY = """
cd /etc/ssh
[ ! -e image_key ] || exit 0
cp -p ssh_host_ed25519_key image_key
cp -p ssh_host_ed25519_key.pub image_key.pub
sed -i 's,^HostKey .*,HostKey /etc/ssh/image_key,' sshd_config.d/shakedown.conf
systemctl reload ssh
rm ssh_host_ed25519_key ssh_host_ed25519_key.pub
ssh-keygen -q -t ed25519 -N '' -f ssh_host_ed25519_key
"""


@pytest.fixture(scope="module")
def ordered_site(tmp_path_factory):
    """A lab of two nodes, each machine with a host key of its own."""
    folder = tmp_path_factory.mktemp("ordered")
    with converged(2, NAME, folder, inventory_with(folder, acceptance={"acceptance": ACCEPTANCE})) as made:
        made.restore()
        for machine in MACHINES:
            done = made.lab.ssh(machine, ["sh", "-ec", OWN_KEY])
            assert done.returncode == 0, done.stderr
        yield made


def call(site, *words: object) -> subprocess.CompletedProcess[str]:
    """Call the controller's own command line."""
    return ran(BIN / "shakedown", *words, env=environment(site.lab.name, site.wheels))


def test_an_ordered_run_is_signed_by_each_node_and_verifies(ordered_site):
    """Catches: a node that cannot sign where it measures; a submit host, no node itself,
    that cannot sign the chain; an honest run that is not as ordered; an output
    that is changed after its node had signed it, and verifies."""
    site, folder = ordered_site, ordered_site.folder
    run, key, order = folder / "ordered", make_key(folder, "customer"), folder / "order.json"
    make_signers(folder / "signers", {"customer@site": key})
    keys = {m: site.lab.ssh(m, ["cat", "/etc/ssh/ssh_host_ed25519_key.pub"]).stdout for m in MACHINES}
    (folder / "known").write_text("".join(f"{machine} {text}" for machine, text in keys.items()))
    made = call(site, "plan", site.inventory, "--output", run)
    assert made.returncode == 0, made.stderr
    user = site.lab.ssh("head", ["id", "-u"]).stdout.strip()
    words = ("--key", key, "--hosts", folder / "known", "--submit", "head", "--user", user, "--output", order)
    made = call(site, "order", run, *words)
    assert made.returncode == 0, made.stderr
    well, printed = site.play(
        "acceptance.yml", run_id="ordered", options=("-e", f"run_root={folder}", "-e", f"order={order}")
    )
    assert well, printed[-4000:]
    for job in (run / "raw").glob("*/job.json"):
        assert sorted(p.name for p in job.parent.glob("signed.*.link.json")) == [
            f"signed.{node}.link.json" for node in ("n1", "n2")
        ]
    lines = [json.loads(line) for line in (run / "raw" / "chain.jsonl").read_text().splitlines()]
    assert lines and all("signature" in line for line in lines), lines
    assert call(site, "seal", run, "--redact", "--key", key).returncode == 0
    verify = ("verify", run, "--signers", folder / "signers", "--order", order)
    verified = call(site, *verify)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "as ordered by customer@site" in verified.stdout

    output = next((run / "raw").glob("fabric.ib_write_bw.a1/ib_write_bw.*.txt"))
    output.write_text(output.read_text() + "\n")
    for name in ("SHA256SUMS", "SHA256SUMS.sig"):
        (run / name).unlink()
    assert call(site, "collect", run).returncode == 0
    call(site, "verdict", run, "--write")
    call(site, "report", run)
    assert call(site, "seal", run, "--redact", "--key", key).returncode == 0
    verified = call(site, *verify)
    assert verified.returncode == 1
    assert f"{output.name}: was changed after its node had signed it" in verified.stdout


def test_no_node_can_change_what_the_head_runs(ordered_site):
    """Catches: root of one node that is root of the submit host, by way of the programs on the share."""
    lab = ordered_site.lab
    for node in ("n1", "n2"):
        written = lab.ssh(node, ["touch", "/shared/shakedown-code/src/shakedown/__init__.py"])
        assert written.returncode != 0 and "Read-only file system" in written.stderr
        mounted = lab.ssh(node, ["findmnt", "-no", "OPTIONS", "/shared/shakedown"]).stdout
        assert {"nosuid", "nodev"} <= set(mounted.strip().split(","))
        used = lab.ssh(node, ["/shared/shakedown-code/venv/bin/python", "-c", "import shakedown"])
        assert used.returncode == 0, used.stderr
