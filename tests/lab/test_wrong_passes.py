"""Evidence that is none, in the virtual cluster: work not done, and one machine that stands for two."""

from dataclasses import replace

import pytest
from conftest import inventory_with

from lab.paths import CHECKOUT

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]

# A program in ib_write_bw's place that runs a tenth of the iterations. The server stays the process that was
# started, for the job looks whether that one listens; the client may tell of ten times what it did.
WRAPPER = r"""#!/bin/sh
for word; do
    shift
    case $word in --iters=*) word=--iters=$((${word#--iters=} / 10)) ;; esac
    set -- "$@" "$word"
done
case $word in
[0-9]*) FORGE ;;
esac
exec /usr/bin/ib_write_bw.real "$@"
"""
HONEST = ":"
FORGED = r"""/usr/bin/ib_write_bw.real "$@" | sed -E 's/^( *[0-9]+ +[0-9]+)( )/\10\2/'; exit"""
INSTALL = """
set -eu
[ -e /usr/bin/ib_write_bw.real ] || mv /usr/bin/ib_write_bw /usr/bin/ib_write_bw.real
cat > /usr/bin/ib_write_bw
chmod 755 /usr/bin/ib_write_bw
"""
# An inventory whose n2 is reached where n1 is: a copied line with the old address.
ONE_FOR_TWO = f"""#!{CHECKOUT}/.venv/bin/python
import json, subprocess, sys
script = [sys.executable, {str(CHECKOUT / "inventories/lab/hosts.py")!r}, *sys.argv[1:]]
found = json.loads(subprocess.run(script, check=True, capture_output=True).stdout)
hosts = found.get("_meta", {{}}).get("hostvars", {{}})
if "n2" in hosts:
    hosts["n2"] |= {{key: value for key, value in hosts["n1"].items() if key.startswith("ansible_")}}
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (HONEST, ("this test ran 30 iterations, 300 were ordered",)),
        # The rate printed, of ten times the bytes, can stand for more time than the test had.
        (FORGED, ("the NIC counted ", "the whole test took ")),
    ],
    ids=["honest", "forged"],
)
def test_a_tenth_of_the_work_decides_nothing(fresh, forge, words):
    """Catches: a wrapper that runs 30 of 300 ordered iterations, and passes whether or not it says so."""
    for node in ("n1", "n2"):
        done = fresh.lab.ssh(node, ["sh", "-c", INSTALL], input_text=WRAPPER.replace("FORGE", forge))
        assert done.returncode == 0, done.stderr
    status, verdict, _ = fresh.accept("a-tenth", "fabric")
    assert (status, verdict["outcome"]) == (3, "INCONCLUSIVE"), verdict["reason"]
    undecided = {c["cell"]: c["reason"] for c in verdict["cells"] if c["outcome"] == "INCONCLUSIVE"}
    assert undecided
    assert all("/ib_write_bw/bandwidth" in cell for cell in undecided), undecided
    assert all(any(w in reason for w in words) for reason in undecided.values()), undecided
    assert any(words[0] in reason for reason in undecided.values()), undecided
    group = [g for g in verdict["groups"] if (g["test"], g["metric"][:9]) == ("ib_write_bw", "bandwidth")]
    assert sum(g["planned"] for g in group) == len(undecided), "a cell passed on a tenth of its work"


def test_two_hosts_of_the_inventory_that_are_one_machine_fail_by_both_names(fresh, tmp_path):
    """Catches: a node that nobody read, because the inventory reaches its neighbour in its place."""
    inventory = inventory_with(tmp_path)
    (inventory / "hosts.sh").write_text(ONE_FOR_TWO)
    status, verdict, _ = replace(fresh, inventory=inventory).accept("one-for-two", "config")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    failed = {c["cell"]: c["reason"] for c in verdict["cells"] if c["outcome"] == "FAIL"}
    assert set(failed) == {f"config/identity/shared/{node}/-/-/-" for node in ("n1", "n2")}, failed
    assert all("n1 and n2 are one machine: " in reason for reason in failed.values()), failed
    assert "n1 and n2 are one machine: " in verdict["reason"], verdict["reason"]
