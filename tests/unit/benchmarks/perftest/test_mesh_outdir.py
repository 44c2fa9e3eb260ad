"""The drivers' own folder, without a run: what it proves, what is refused, who is suspect."""

import hashlib
import json
import os

import pytest
from fake_perftest import report

from shakedown.benchmarks.perftest.mesh.completeness import lost_nodes
from shakedown.benchmarks.perftest.mesh.completeness import main as ended
from shakedown.benchmarks.perftest.mesh.schedule import client_and_server, nic_of, pairs_of, slots_of
from shakedown.benchmarks.perftest.mesh.spec import parse_spec
from shakedown.judge.localise.outdir import Outdir, is_outdir
from shakedown.judge.localise.suspects import first_pairs
from tests.kit.refusal import refused
from tests.unit.benchmarks.perftest.local_mesh import spec_data

START = "2026-01-01T00:00:00.000Z"


class Folder:
    """An OUTDIR and its specification, written as the drivers would."""

    def __init__(self, path, data, rate=lambda *_: 97.25):
        self.out, self.spec_file, self.spec = path / "out", path / "quick.json", parse_spec(data)
        self.out.mkdir()
        self.spec_file.write_text(json.dumps(data))
        self.digest = hashlib.sha256(self.spec_file.read_bytes()).hexdigest()
        for node in self.spec.nodes:
            self.start(node)
        for pair in pairs_of(self.spec):
            for slot in slots_of(self.spec):
                for rail in slot.rails:
                    self.measure(pair, slot, rail, rate(pair, slot.direction, rail))

    def append(self, name, entry):
        """Append a line."""
        with (self.out / name).open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def start(self, node, **changes):
        """Write that a driver was started."""
        start = {"event": "start", "time": START, "node": node, "spec_sha256": self.digest}
        self.append(f"journal.{node}.jsonl", {**start, "perftest": {"ib_write_bw": "6.22"}, **changes})

    def measure(self, pair, slot, rail, gbps, attempt=1, **changes):
        """Write one result, or with None that the second node of the pair was lost."""
        ends = client_and_server(slot.operation.test, pair, slot.direction)
        addresses = [nic_of(self.spec, node, pair, slot.direction, rail).ipv4 for node in ends]
        again = f".a{attempt}" if attempt > 1 else ""
        name = f"ib_write_bw.{','.join(pair)}.{rail}.{slot.direction}{again}.txt"
        text = "" if gbps is None else report("ib_write_bw", 65536, gbps, addresses)
        (self.out / name).write_text(text)
        lost = {"kind": "environment", "message": f"{pair[1]} lost: no answer for 15 s"}
        record = {"schema": 1, "tool": "perftest", "test": "ib_write_bw", "file": name, "nodes": pair}
        record |= {"rail": rail, "direction": slot.direction}
        record |= {"params": {"size_bytes": 65536, "rails_at_once": slot.rails_at_once}, "attempt": attempt}
        record |= {"exit_code": None if gbps is None else 0, "started": START, "duration_s": 1.0}
        record |= {"problem": lost if gbps is None else None, **changes}
        self.append(f"outputs.{ends[0] if gbps else pair[0]}.jsonl", record)


@pytest.fixture
def folder(tmp_path):
    """A maker of folders."""

    def make(nodes=3, rails=1, rate=lambda *_: 97.25, **changes):
        return Folder(tmp_path, spec_data(nodes, rails, **changes), rate)

    return make


CELL = "ib_write_bw.n1,n2.rail0.forward.txt"
OTHER = "ib_write_bw.n1,n3.rail0.forward.txt"
DAMAGE = {
    "gone": lambda file: file.unlink(),
    "empty": lambda file: file.write_text(""),
    "a link": lambda file: (file.unlink(), file.symlink_to(OTHER)),
    "cut off": lambda file: file.write_text(file.read_text()[:-300]),
    "no number": lambda file: file.write_text(file.read_text().replace("97.250000", "0.000000")),
    "not UTF-8": lambda file: file.write_bytes(b"\xff" + file.read_bytes()),
    "another pair's": lambda file: file.write_text((file.parent / OTHER).read_text()),
    "another MTU's": lambda file: file.write_text(file.read_text().replace("4096[B]", "1024[B]")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_cell_counts_only_if_its_output_holds_its_number(shakedown, folder, damage):
    """Catches: a mesh called complete by its records alone, whose outputs are lost or another's."""
    made = folder()
    status, said, _ = shakedown("mesh", "coverage", made.spec_file, made.out)
    assert (status, said) == (0, "3/3 pairs, 1/1 rails, 2/2 directions, 6/6 cells\n")
    DAMAGE[damage](made.out / CELL)
    status, said, _ = shakedown("mesh", "coverage", made.spec_file, made.out)
    assert status == 3 and "5/6 cells" in said
    assert f"missing: n1 and n2, rail0, forward: {CELL}" in said
    status, said, _ = shakedown("mesh", "coverage", made.spec_file, made.out, "--json")
    document = json.loads(said)
    assert (status, document["missing"]) == (3, [["n1", "n2", "rail0", "forward"]])
    assert len(document["why"]) == 1 and CELL in document["why"][0]


def test_results_of_another_specification_prove_nothing(shakedown, folder):
    """Catches: a mesh at another MTU taken as proof, because the cells have the same names."""
    made = folder()
    made.spec_file.write_text(json.dumps(spec_data(3, mtu=1024)))
    for words in (
        ("coverage", made.spec_file, made.out),
        ("confirm", made.spec_file, made.out, "-o", "c.json"),
    ):
        status, _, err = shakedown("mesh", *words)
        assert (status, err.count("\n")) == (2, 1)
        assert "journal.n1.jsonl:1: started with another specification" in err


def test_results_of_two_versions_of_perftest_are_no_whole(shakedown, folder):
    """Catches: pairs measured with another perftest after an update of some nodes, counted as one mesh."""
    made = folder()
    made.start("n2", time="2025-01-01T00:00:00.000Z", perftest={"ib_write_bw": None})
    made.start("n2", time="2025-06-01T00:00:00.000Z", perftest={"ib_write_bw": "24.07"})
    lines = (made.out / "journal.n2.jsonl").read_text().splitlines()
    # In the order of time: the version of the last start before the measurement is the one that counts.
    (made.out / "journal.n2.jsonl").write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    assert shakedown("mesh", "coverage", made.spec_file, made.out)[0] == 0
    (made.out / "journal.n2.jsonl").write_text("\n".join(lines[1:]) + "\n")
    status, _, err = shakedown("mesh", "coverage", made.spec_file, made.out)
    assert (status, err.count("\n")) == (2, 1)
    assert "ib_write_bw 6.22 has measured here, and 24.07 is another" in err


def test_results_without_their_journal_prove_nothing(shakedown, folder):
    """Catches: records copied from anywhere, taken as proof for a specification that nobody knows them of."""
    made = folder()
    (made.out / "journal.n1.jsonl").unlink()
    status, _, err = shakedown("mesh", "coverage", made.spec_file, made.out)
    assert status == 2 and err.count("\n") == 1 and "no journal of n1" in err


def test_coverage_tells_of_clocks_and_dropped_nodes(shakedown, folder):
    """Catches: a clock skew that is journalled, so that times mislead, and shown to nobody."""
    made = folder()
    for seconds in (2.5, 41.0, 3.0):
        made.append("journal.n1.jsonl", {"event": "clock-skew", "partner": "n3", "seconds": seconds})
    made.append("journal.n2.jsonl", {"event": "dropped", "dropped": "n3", "reason": "x"})
    status, said, _ = shakedown("mesh", "coverage", made.spec_file, made.out)
    assert "the clocks of n1 and n3 were 41 s apart" in said and "n3 was dropped by n2" in said
    document = json.loads(shakedown("mesh", "coverage", made.spec_file, made.out, "--json")[1])
    assert (document["clock_skew"], document["dropped"]) == ([["n1", "n3", 41.0]], {"n3": ["n2"]})
    assert status == 0


NESTED = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("name", ["outputs.n1.jsonl", "journal.n1.jsonl"])
@pytest.mark.parametrize("line", [b"null", b"[]", b"7", b'{"problem":"x"}', NESTED, b"\xff"])
def test_a_damaged_line_is_named(shakedown, folder, name, line):
    """Catches: a traceback at a damaged record or journal."""
    made = folder()
    (made.out / name).write_bytes(b"\n" + line + b"\n")
    status, out, err = shakedown("mesh", "coverage", made.spec_file, made.out)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{name}:2: " in err


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("name", ["outputs.n1.jsonl", "journal.n1.jsonl"])
def test_what_is_no_file_is_refused(shakedown, folder, capsys, name, make):
    """Catches: a command that waits for ever at a pipe, or reads through a link."""
    made = folder()
    (made.out / name).unlink()
    make(made.out / name)
    status, out, err = shakedown("mesh", "coverage", made.spec_file, made.out)
    assert (status, out, err.count("\n")) == (2, "", 1) and name in err
    if name.startswith("journal"):
        refused(name, lost_nodes, made.out, made.spec.nodes)
        (made.out / "spec.json").write_bytes(made.spec_file.read_bytes())
        assert ended([str(made.out)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("line", [b"null", b"7", NESTED])
def test_a_damaged_journal_is_no_end(folder, line):
    """Catches: a journal that nobody can read skipped over, or a traceback, when a mesh's end is judged."""
    made = folder()
    with (made.out / "journal.n2.jsonl").open("ab") as journal:
        journal.write(line + b"\n")
    refused(r"journal\.n2\.jsonl:2: not a journal line", lost_nodes, made.out, made.spec.nodes)


@pytest.mark.parametrize("command", ["plan", "coverage", "confirm"])
@pytest.mark.parametrize("content", [NESTED, b"[" * 800 + b"]" * 800, b"7", b"\xff", b'{"mode":[]}'])
def test_a_damaged_specification_is_refused_in_one_line(shakedown, folder, command, content):
    """Catches: a traceback at a specification that is no JSON, or too deeply nested."""
    made = folder()
    made.spec_file.write_bytes(content)
    words = {"plan": (), "coverage": (made.out,), "confirm": (made.out, "-o", made.out / "c.json")}[command]
    status, out, err = shakedown("mesh", command, made.spec_file, *words)
    assert (status, out, err.count("\n")) == (2, "", 1) and "quick.json" in err


def test_a_list_of_pairs_that_is_no_text_is_refused_in_one_line(shakedown, folder, tmp_path):
    """Catches: a traceback at a file of pairs in another encoding, or at none."""
    made, pairs = folder(), tmp_path / "pairs.txt"
    words = ("mesh", "plan", made.spec_file, "--mode", "pairs", "--pairs", pairs)
    status, _, err = shakedown(*words)
    assert (status, err.count("\n")) == (2, 1) and "pairs.txt" in err
    pairs.write_bytes(b"n1 n2\nn\xff n3\n")
    status, _, err = shakedown(*words)
    assert (status, err.count("\n")) == (2, 1) and "pairs.txt:2: not UTF-8" in err


def quick(nodes):
    """The changes that make a quick mesh of a specification."""
    names = [f"n{i}" for i in range(1, nodes + 1)]
    return {"mode": "pairs", "pairs": [list(p) for p in first_pairs(names, seed=1)]}


def slow(node, *lost):
    """Rates of a mesh with one slow node, and with nodes that are lost to whoever meets them."""

    def rate(pair, direction, _rail=None):
        # Not all alike: what has no noise at all is not from a measurement.
        noise = hashlib.sha256(f"{pair}{direction}".encode()).digest()[0] / 2560
        if set(lost) & set(pair):
            return None
        return (90.0 if node in pair else 97.0) + noise

    return rate


def test_suspects_of_a_mesh_measured_by_hand_are_confirmed(shakedown, folder, tmp_path):
    """Catches: a quick mesh that can be measured by hand, and then not be used for want of a run."""
    made, confirming = folder(24, rate=slow("n7"), **quick(24)), tmp_path / "confirm.json"
    status, said, _ = shakedown("mesh", "confirm", made.spec_file, made.out, "-o", confirming)
    assert (status, said) == (3, "suspects n7: 2 pairs in 2 rounds\n")
    pairs = parse_spec(json.loads(confirming.read_text())).pairs
    assert all("n7" in pair for pair in pairs) and not set(pairs) & set(made.spec.pairs)
    assert is_outdir(made.out) and Outdir(made.out).pairs().measured == 36 * 2
    assert Outdir(made.out, made.spec).pairs().missing == 0


def test_nothing_to_confirm_is_said_only_if_everything_was_measured(shakedown, folder, tmp_path):
    """Catches: exit status 0 for a mesh of which a part is missing, so that nobody could be suspect."""
    made, confirming = folder(24, rate=slow(""), **quick(24)), tmp_path / "confirm.json"
    words = ("mesh", "confirm", made.spec_file, made.out, "-o", confirming)
    assert shakedown(*words)[:2] == (
        0,
        "no suspect: nothing to confirm; nothing was compared with a reference\n",
    )
    a, b = made.spec.pairs[0]
    (made.out / f"ib_write_bw.{a},{b}.rail0.forward.txt").unlink()
    status, said, _ = shakedown(*words)
    assert status == 3 and said.startswith("no suspect, but 1 of 72 results are missing")
    assert f"missing: {a} and {b}, rail0, forward" in said
    assert not confirming.exists()


def test_a_lost_node_is_named_and_confirms_nobody(shakedown, folder, tmp_path):
    """Catches: a dead node passed over in silence, or taken as a good partner of the suspects."""
    lost = [f"n{i}" for i in range(1, 25) if i != 7][:9]
    made, confirming = folder(24, rate=slow("n7", *lost), **quick(24)), tmp_path / "confirm.json"
    status, said, _ = shakedown("mesh", "confirm", made.spec_file, made.out, "-o", confirming)
    assert status == 3 and "results are missing" in said
    assert any(f"{node}: {node} lost" in said for node in lost)
    if confirming.exists():
        pairs = parse_spec(json.loads(confirming.read_text())).pairs
        assert not set(lost) & {node for pair in pairs for node in pair}


def test_confirm_takes_a_run_folder_as_before_and_misses_what_it_lacks(shakedown, folder, tmp_path):
    """Catches: a run whose results break off called free of suspects."""
    run, data = tmp_path / "run", spec_data(20)
    assert shakedown("simulate", run, "--nodes", 20, "--rails", 1)[0] == 0
    names = json.loads((run / "plan.json").read_text())["nodes"]
    data["nodes"] = dict(zip(names, data["nodes"].values(), strict=True))
    (tmp_path / "spec.json").write_text(json.dumps(data))
    words = ("mesh", "confirm", tmp_path / "spec.json", run, "-o", tmp_path / "c.json")
    assert shakedown(*words)[:2] == (
        0,
        "no suspect: nothing to confirm; nothing was compared with a reference\n",
    )
    lines = (run / "results.jsonl").read_text().splitlines(keepends=True)
    (run / "results.jsonl").write_text("".join(lines[:-5]))
    status, said, _ = shakedown(*words)
    assert status == 3 and "5 of 380 results are missing" in said


def test_a_folder_of_neither_kind_is_refused(shakedown, folder, tmp_path):
    """Catches: an empty or mistyped folder taken for a mesh without suspects."""
    made = folder()
    for where in (tmp_path / "nowhere", tmp_path):
        status, _, err = shakedown("mesh", "confirm", made.spec_file, where, "-o", tmp_path / "c.json")
        assert (status, err.count("\n")) == (2, 1)


def test_a_quick_mesh_and_what_confirmed_it_name_the_node_together(shakedown, folder, tmp_path):
    """Catches: a quick mesh whose end is a list of suspects, as no command reads both of its folders."""
    made, confirming = folder(24, rate=slow("n7"), **quick(24)), tmp_path / "confirm.json"
    shakedown("mesh", "confirm", made.spec_file, made.out, "-o", confirming)
    (tmp_path / "second").mkdir()
    again = Folder(tmp_path / "second", json.loads(confirming.read_text()), slow("n7"))
    words = ("localise", made.out, again.out, "--spec", made.spec_file, "--spec", again.spec_file)
    status, said, err = shakedown(*words)
    assert status == 1, said + err
    assert "nic n7 rail0" in said and "5 partners" in said and "76 results, 0 missing" in said
    (again.out / "outputs.n7.jsonl").unlink()
    status, said, _ = shakedown(*words)
    assert "0 missing" not in said
    status, _, err = shakedown(*words[:-2])
    assert (status, err.count("\n")) == (2, 1) and "--spec for each OUTDIR" in err
    status, _, err = shakedown(
        "localise", made.out, again.out, "--spec", again.spec_file, "--spec", made.spec_file
    )
    assert (status, err.count("\n")) == (2, 1) and "another specification" in err


def test_a_healthy_mesh_measured_by_hand_is_at_no_fault(shakedown, folder):
    """Catches: exit status 0 only for runs, so that a mesh by hand can never be found well."""
    made = folder(24, rate=slow(""), **quick(24))
    assert shakedown("localise", made.out, "--spec", made.spec_file)[0] == 0
    (made.out / CELL.replace("n1,n2", ",".join(made.spec.pairs[0]))).unlink()
    assert shakedown("localise", made.out, "--spec", made.spec_file)[0] == 3


def test_something_larger_than_a_node_is_not_called_well(shakedown, folder, tmp_path):
    """Catches: exit status 0 for a mesh with a slow rail; without paths it is a suspect and no cause."""

    def rate(pair, direction, rail):
        return slow("")(pair, direction) * (0.5 if rail == "rail2" else 1)

    made = folder(24, 4, rate=rate, **quick(24))
    status, said, _ = shakedown("mesh", "confirm", made.spec_file, made.out, "-o", tmp_path / "c.json")
    assert status == 3 and said.startswith("rail rail2, -50.0%: ") and "no suspect" not in said
    assert not (tmp_path / "c.json").exists()
    status, said, _ = shakedown("localise", made.out, "--spec", made.spec_file)
    assert status == 3 and "SUSPECT rail rail2, -50.0%" in said


@pytest.mark.parametrize("nodes", [4, 8, 18])
def test_a_slow_pair_is_told_though_nobody_is_named(shakedown, folder, nodes):
    """Catches: exit status 0 for a mesh in which a pair has half of the rate, and neither end is to blame."""

    def rate(pair, direction, _rail):
        return slow("")(pair, direction) * (0.5 if pair == ("n2", "n3") else 1)

    made = folder(nodes, 2, rate=rate)
    status, said, _ = shakedown("localise", made.out, "--spec", made.spec_file)
    assert status == 3 and "0 causes" in said, said
    if nodes >= 16:  # enough results to name the pair
        assert "SUSPECT pair n2 n3, -50.0%" in said, said
        return
    assert "slow, but too few to name the part at fault: 4 results" in said, said
    assert "n2 to n3, rail0: -50." in said or "n2 to n3, rail0: -49." in said


def test_a_slow_pair_of_a_quick_mesh_is_no_all_clear(shakedown, folder, tmp_path):
    """Catches: exit status 0 from confirm, because neither end of a pair at half of its rate is suspect."""
    pairs = quick(24)["pairs"]

    def rate(pair, direction, _rail):
        return slow("")(pair, direction) * (0.5 if list(pair) == pairs[0] else 1)

    made = folder(24, rate=rate, **quick(24))
    assert shakedown("mesh", "confirm", made.spec_file, made.out, "-o", tmp_path / "c.json")[0] == 3
    assert shakedown("localise", made.out, "--spec", made.spec_file)[0] == 3


def test_the_last_attempt_decides(shakedown, folder, tmp_path):
    """Catches: a cell covered by a first attempt, whose second failed, and attempts that disagree unsaid."""
    made = folder(24, rate=slow(""), **quick(24))
    (pair, *_), [slot, *_] = made.spec.pairs, slots_of(made.spec)
    words = made.out, "--spec", made.spec_file
    made.measure(pair, slot, "rail0", 50.0, attempt=2)
    status, said, _ = shakedown("localise", *words)
    assert status == 3 and "1 result not the same in every attempt" in said, said
    assert shakedown("mesh", "coverage", made.spec_file, made.out)[0] == 0
    made.measure(pair, slot, "rail0", None, attempt=3, exit_code=1)
    assert shakedown("mesh", "coverage", made.spec_file, made.out)[0] == 3
    assert shakedown("mesh", "confirm", made.spec_file, made.out, "-o", tmp_path / "c.json")[0] == 3
    status, said, _ = shakedown("localise", *words)
    assert status == 3 and "1 missing" in said


def test_nothing_is_read_twice(shakedown, folder, tmp_path):
    """Catches: a folder named twice that has as many missing results as results."""
    made = folder(4)
    words = ("--spec", made.spec_file, "--spec", made.spec_file)
    status, _, err = shakedown("localise", made.out, made.out, *words)
    assert (status, err.count("\n")) == (2, 1) and "named twice" in err
    (tmp_path / "again").mkdir()
    again = Folder(tmp_path / "again", spec_data(4, 1))
    status, _, err = shakedown("localise", made.out, again.out, *words)
    assert (status, err.count("\n")) == (2, 1) and "n1 and n2 alike" in err


def test_a_clock_of_a_thousand_digits_is_no_clock(shakedown, folder):
    """Catches: a traceback over a number that no driver writes."""
    made = folder(3)
    with (made.out / "journal.n1.jsonl").open("a") as file:
        file.write('{"event": "clock-skew", "partner": "n2", "seconds": ' + "9" * 400 + "}\n")
    assert shakedown("mesh", "coverage", made.spec_file, made.out)[0] == 0
