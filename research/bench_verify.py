"""Cost of `shakedown seal` and `verify --order`: `python research/bench_verify.py [NODES[xLOGS] ...]`.

A made-up bundle of NODES x 8 rails: a ring of perftest both ways, with an output of each, counters of
every node, LOGS files of every node that no reader needs, and what every node signed. All nodes have one key
here, which changes no time. Collecting, judging and reporting are not counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "roles/host_settings/files"), str(ROOT / "tests/unit/evidence")]
RAILS, NONCE, AT = 8, "5" * 64, "2026-11-20T13:30:24Z"
JOB, OUTPUT = "fabric.ib_write_bw", "ib_write_bw.{a},{b}.rail{r}.{d}.65536.one.txt"


def address(node: int, rail: int) -> str:
    """Return a NIC's address."""
    return f"10.{rail}.{node // 250}.{node % 250 + 1}"


def write_run(run: Path, folder: Path, count: int, logs: int) -> None:
    """Write a run that was ordered and signed by its nodes, with `logs` files of each that nobody reads."""
    from ordered import make_key

    from shakedown.collect.run import collect
    from shakedown.evidence import orders
    from shakedown.evidence.signatures import Order, OrderedNode, ordered_tests
    from shakedown.judge.judged import judge_folder
    from shakedown.records.plan import Plan
    from shakedown.records.reading import read_record
    from shakedown.run import chain
    from shakedown.run.folder import write_verdict
    from tests.kit.archive import unpack

    unpack(ROOT / "tests/runs/lab_healthy/run.tar.xz", folder / "lab")
    lab, names = folder / "lab", [f"n{i}" for i in range(count)]
    job = run / f"raw/{JOB}.a1"
    job.mkdir(parents=True)
    pairs = _plan(run, job, lab, names)
    record = json.loads((lab / f"raw/{JOB}.a1/job.json").read_text())
    (job / "job.json").write_text(json.dumps(record | {"nodes": names}))
    (job / "nodes.txt").write_text("\n".join(names) + "\n")
    text = (lab / f"raw/{JOB}.a1" / OUTPUT.format(a="n1", b="n2", r=0, d="forward")).read_text()
    counters = (lab / f"raw/{JOB}.a1/counters.n1.before.json").read_text()
    key = make_key(folder, "host")
    public = subprocess.run(["ssh-keygen", "-lf", key], capture_output=True, text=True, check=True).stdout
    node = OrderedNode(host_keys=(public.split()[1],))
    made = read_record(run / "plan.json", Plan)
    order = Order(
        run=made.run,
        system=made.system,
        nonce=NONCE,
        plan=orders.digest((run / "plan.json").read_bytes()),
        jobs=orders.digest((run / "jobs.json").read_bytes()),
        not_before="2026-11-20T13:00:00Z",
        not_after="2026-11-27T13:00:00Z",
        nodes=dict.fromkeys(names, node),
        user=1,
        tests=ordered_tests(made),
        references=made.references,
    )
    customer = make_key(folder, "customer")
    (folder / "signers").write_text(f"customer@site {customer.with_suffix('.pub').read_text()}")
    orders.write(order, folder / "order.json", customer)
    orders.write(order, run / "order.json", customer)
    ordered = hashlib.sha256((run / "order.json").read_bytes()).hexdigest()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda p: _node(job, p, text, counters, key, ordered, logs), pairs))
    account = f"JobId={record['job']} JobState=COMPLETED ExitCode=0:0 Restarts=0\n"
    chain.add(run / "raw", job.name, ordered, account)
    line = json.loads((run / "raw/chain.jsonl").read_text())
    line["line"] = re.sub(r'"time": "[^"]+"', f'"time": "{AT}"', line["line"])
    (run / "raw/chain.jsonl").write_text(json.dumps(line) + "\n")
    machines = [{"kind": "node", "host": n, "name": n, "attributes": {}} for n in names]
    snapshot = json.loads((lab / "inventory.json").read_text()) | {"components": machines}
    (run / "inventory.json").write_text(json.dumps(snapshot))
    collect(run)
    write_verdict(run, judge_folder(run))
    report = [sys.executable, "-m", "shakedown", "report", run]
    subprocess.run(report, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)


def _plan(run: Path, job: Path, lab: Path, names: list[str]) -> list[tuple[int, int]]:
    """Write plan, jobs and the job's settings; return the pairs."""
    count = len(names)
    plan, jobs = (json.loads((lab / f"{name}.json").read_text()) for name in ("plan", "jobs"))
    pairs = [(i, (i + 1) % count) for i in range(count)]
    rails = [f"rail{r}" for r in range(RAILS)]
    item = next(i for i in plan["items"] if i["test"] == "ib_write_bw" and i["metric"] == "bandwidth")
    item |= {"nodes": [[f"n{a}", f"n{b}"] for a, b in pairs], "rails": rails}
    plan |= {"nodes": names, "rails": rails, "items": [item]}
    spec = next(j for j in jobs["jobs"] if j["name"] == JOB) | {"nodes": names}
    nics = {n: [_nic(i, r) for r in range(RAILS)] for i, n in enumerate(names)}
    spec["settings"] |= {"rails": rails, "directions": ["forward", "reverse"], "nodes": {}}
    for i, name in enumerate(names):
        ends = {nic["rail"]: {k: nic[k] for k in ("rdma_device", "netdev", "ipv4")} for nic in nics[name]}
        spec["settings"]["nodes"][name] = {"address": f"10.200.{i // 250}.{i % 250 + 1}", "rails": ends}
    jobs |= {"jobs": [spec], "nics": nics}
    for name, document in (("plan", plan), ("jobs", jobs)):
        (run / f"{name}.json").write_text(json.dumps(document))
    (job / "spec.json").write_text(json.dumps(spec["settings"], indent=1))
    return pairs


def _nic(node: int, rail: int) -> dict[str, str]:
    name = {"rail": f"rail{rail}", "rdma_device": f"rxe{rail}", "netdev": f"fab{rail}"}
    return {**name, "ipv4": address(node, rail), "leaf": "leaf0", "leaf_port": f"swp{node}"}


def _node(
    job: Path, pair: tuple[int, int], text: str, counters: str, key: Path, order: str, logs: int
) -> None:
    from shakedown.evidence.signatures import sign

    a, b = (f"n{i}" for i in pair)
    files: dict[str, str] = {"nodes.txt": _digest(job / "nodes.txt"), "spec.json": _digest(job / "spec.json")}
    lines = []
    for number in range(logs):
        said = f"rank {number} of {a}: nothing to tell\n"
        (job / f"rank.{a}.{number}.log").write_text(said)
        files[f"rank.{a}.{number}.log"] = hashlib.sha256(said.encode()).hexdigest()
    for rail in range(RAILS):
        for direction in ("forward", "reverse"):
            name = OUTPUT.format(a=a, b=b, r=rail, d=direction)
            ends = [address(i, rail) for i in pair]
            shown = iter(ends if direction == "forward" else ends[::-1])
            body = re.sub(r"GID: [0-9:]+", lambda _, shown=shown: _gid(next(shown)), text).replace(
                "rxe0", f"rxe{rail}"
            )
            (job / name).write_text(body.replace("0x20687c", f"0x{pair[0] * 16 + rail:06x}"))
            record = {"schema": 1, "tool": "perftest", "test": "ib_write_bw", "file": name, "nodes": [a, b]}
            record |= {"rail": f"rail{rail}", "direction": direction, "exit_code": 0, "started": AT}
            params = {"size_bytes": 65536, "rails_at_once": "one"}
            lines.append({**record, "params": params, "duration_s": 2.4, "nonce": NONCE})
            files[name] = _digest(job / name)
    (job / f"outputs.{a}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for when in ("before", "after"):
        document = json.loads(counters) | {"node": a, "when": when}
        (job / f"counters.{a}.{when}.json").write_text(json.dumps(document))
        files[f"counters.{a}.{when}.json"] = _digest(job / f"counters.{a}.{when}.json")
    files[f"outputs.{a}.jsonl"] = _digest(job / f"outputs.{a}.jsonl")
    head = {"schema": 1, "node": a, "order": order, "nonce": NONCE, "folder": job.name, "job": "2"}
    manifest = json.dumps({**head, "files": files}).encode()
    (job / f"signed.{a}.json").write_bytes(manifest)
    link = {"schema": 1, "purpose": "shakedown-outputs", "order": order, "number": 1, "before": "0" * 64}
    link |= {"digest": hashlib.sha256(manifest).hexdigest(), "time": AT, "uid": 1, "machine": ""}
    said = json.dumps(link)
    signed = {"schema": 1, "link": said, "signature": sign(said.encode(), key).decode()}
    (job / f"signed.{a}.link.json").write_text(json.dumps(signed))


def _gid(ipv4: str) -> str:
    octets = ":".join(f"{int(part):02}" for part in ipv4.split("."))
    return f"GID: 00:00:00:00:00:00:00:00:00:00:255:255:{octets}"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def call(*words: object) -> str:
    """Run a command; return its CPU seconds, wall seconds and peak MiB, with those of its children.

    Raises:
        SystemExit: it fails, so what the time was for is not known.
    """
    began = time.perf_counter()
    command = [sys.executable, "-m", "shakedown", *map(str, words)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    assert child.stdout is not None
    said = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{words[0]} failed: {said[:2000]}")
    wall, cpu = time.perf_counter() - began, used.ru_utime + used.ru_stime
    return f"{cpu:7.1f} {wall:7.1f} {used.ru_maxrss / 1024:6.0f}"


def main() -> None:
    """Print a table."""
    print(
        f"{'nodes':>6} {'files':>8}"
        + "".join(f" {c + ' CPU s':>16} {'s':>3} {'MiB':>6}" for c in ("seal", "verify"))
    )
    for word in sys.argv[1:] or ("64", "256", "1024"):
        count, _, logs = word.partition("x")
        with tempfile.TemporaryDirectory() as name:
            folder, run = Path(name), Path(name) / "20261120T132502Z"
            write_run(run, folder, int(count), int(logs or 0))
            files = sum(len(files) for _, _, files in os.walk(run))
            sealed = call("seal", run, "--key", folder / "customer")
            against = ("--signers", folder / "signers", "--order", folder / "order.json")
            print(f"{count:>6} {files:8} {sealed} {call('verify', run, *against)}", flush=True)


if __name__ == "__main__":
    main()
