"""A run that was ordered, and a forger who holds a key that the customer trusts."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from host_settings import signer
from host_settings.system import System

from shakedown.collect.run import collect
from shakedown.evidence import attest, orders, signatures
from shakedown.evidence.job_folder import note_contents
from shakedown.evidence.signatures import Order
from shakedown.judge.judged import judge_folder
from shakedown.onnode import noted
from shakedown.report import seal as bundle
from shakedown.run import chain
from shakedown.run.folder import ORDER, ORDER_SIGNATURE, SIGNATURE, SUMS, run_files, write_verdict
from tests.kit.key import make_key, make_signers


def make_machine(folder: Path, name: str) -> System:
    """Return a machine with an SSH host key and a machine id of its own, as the signing service sees it."""
    root = folder / name
    (root / "etc/ssh").mkdir(parents=True)
    make_key(root / "etc/ssh", "ssh_host_ed25519_key")
    (root / "etc/machine-id").write_text(hashlib.sha256(name.encode()).hexdigest()[:32])
    return System(str(root))


def reseal(run: Path, key: Path) -> None:
    """Make all that follows from the raw files anew, and seal it, as a holder of a key can."""
    for name in (SUMS, SIGNATURE):
        (run / name).unlink(missing_ok=True)
    collect(run)
    write_verdict(run, judge_folder(run))
    sign_sums(run, key)


def sign_sums(run: Path, key: Path) -> None:
    """Write checksums of the files as they are, and sign them."""
    sums = "".join(f"{sha256(run / name)}  {name}\n" for name in run_files(run)).encode()
    (run / SUMS).write_bytes(sums)
    (run / SIGNATURE).write_bytes(signatures.sign(sums, key))


def sha256(path: Path) -> str:
    """Return a file's digest."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass
class World:
    """A run, its order, the machines that measured it, and the keys."""

    run: Path
    order: Path  # the customer's own copy
    signers: Path  # whom the customer trusts: itself and the vendor
    vendor: Path  # the vendor's key
    machines: dict[str, System]
    monkeypatch: object

    def copy(self, to: Path) -> World:
        """Return the same world with a run of its own. Files are linked, for `edit` and `write` replace."""
        shutil.copytree(self.run, to)
        return World(to, self.order, self.signers, self.vendor, self.machines, self.monkeypatch)

    @property
    def digest(self) -> str:
        """The order's digest."""
        return hashlib.sha256(self.order.read_bytes()).hexdigest()

    @property
    def ordered(self) -> Order:
        """The order."""
        return Order.model_validate_json(self.order.read_bytes())

    def sign(
        self,
        node: str,
        folder: str,
        at: float,
        *,
        order: str = "",
        first: bool | None = None,
        uid: int = 1000,
        status: int = 0,
    ) -> None:
        """Have a node sign its outputs of a job, as the job's last step does; `uid` asks it."""
        monkeypatch, job = self.monkeypatch, self.run / "raw" / folder
        record = json.loads((job / "job.json").read_text())
        variables = {
            noted.ORDER: order or self.digest,
            "SHAKEDOWN_NONCE": self.ordered.nonce,
            "SLURMD_NODENAME": node,
            "SLURM_PROCID": "0" if first or (first is None and node == "n1") else "1",
            "SLURM_JOB_ID": record["job"] or "",
        }

        def service(request: str, path: str = "", timeout_s: float = 0) -> dict[str, str]:
            return signer.signed(self.machines[node], request[:64], request[64:], uid)

        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.setattr(attest, "sign", service)
            patch.setattr(signer.time, "time", lambda: at)
            assert attest.main([str(job)]) == status

    def jobs(self) -> list[tuple[str, float, float]]:
        """Return the jobs as they ran: folder, begin and end in seconds since the epoch."""
        found = []
        for path in self.run.glob("raw/*/job.json"):
            record = json.loads(path.read_text())
            began = datetime.fromisoformat(record["started"]).timestamp()
            found.append((path.parent.name, began, began + record["duration_s"]))
        return sorted(found, key=lambda job: job[1])

    def chain(self, folder: str, at: float, *, signs: bool = True) -> None:
        """Add a job to the run's chain, with what Slurm would say of it and what its folder holds."""
        job = self.run / "raw" / folder
        record = json.loads((job / "job.json").read_text()) | {"files": note_contents(job)}
        (job / "job.json").write_text(json.dumps(record))
        account = (
            f"JobId={record['job']} JobName={record['test']} JobState={record['state']} "
            f"ExitCode={record['exit_code']} StartTime={record['started'].rstrip('Z')} Restarts=0\n"
        )

        class Then(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.fromtimestamp(at, tz)

        with self.monkeypatch.context() as patch:
            patch.setattr(chain, "datetime", Then)
            patch.setattr(signer.time, "time", lambda: at)
            head = self.machines["head"]
            sign = lambda request: signer.signed(head, request[:64], request[64:], 1000)  # noqa: E731
            chain.add(self.run / "raw", folder, self.digest, account, sign if signs else None)

    def verify(self, *, ordered: bool = True) -> bundle.Verification:
        """Verify as the customer does."""
        return bundle.verify(self.run, self.signers, self.order if ordered else None)


def make_world(folder: Path, run: Path, monkeypatch) -> World:
    """Order a recorded run, have its nodes sign what they wrote, and let the vendor seal it."""
    customer, vendor = make_key(folder, "customer"), make_key(folder, "vendor")
    signers = make_signers(folder / "signers", {"customer@site": customer, "vendor@site": vendor})
    machines = {name: make_machine(folder, name) for name in ("n1", "n2", "head", "stranger")}
    known = folder / "known_hosts"
    public = "etc/ssh/ssh_host_ed25519_key.pub"
    known.write_text("".join(f"{n} {m.path(public).read_text()}" for n, m in machines.items()))
    snapshot = json.loads((run / "inventory.json").read_text())
    for part in snapshot["components"]:
        if part["kind"] == "node" and part["host"] in machines:
            part["attributes"]["machine_id"] = signer._machine(machines[part["host"]])
    (run / "inventory.json").write_text(json.dumps(snapshot))
    made = orders.make(run, [run / "inventory.json", known], user=1000, days=7, submit="head")
    # The run was recorded a while ago.
    made = made.model_copy(update={"not_before": "2026-11-20T13:00:00Z", "not_after": "2026-11-27T13:00:00Z"})
    orders.write(made, run / ORDER, customer)
    order = folder / ORDER
    for name in (ORDER, ORDER_SIGNATURE):
        shutil.copyfile(run / name, folder / name)
    for spec in json.loads((run / "jobs.json").read_text())["jobs"]:
        for job in run.glob(f"raw/{spec['name']}.a*"):
            (job / "spec.json").write_text(json.dumps(spec["settings"], indent=1))
    world = World(run, order, signers, vendor, machines, monkeypatch)
    for journal in run.glob("raw/*/outputs*.jsonl"):
        records = [json.loads(line) for line in journal.read_text().splitlines()]
        journal.write_text("".join(json.dumps(r | {"nonce": made.nonce}) + "\n" for r in records))
    for name, _, end in world.jobs():
        for node in ("n1", "n2"):
            world.sign(node, name, end)
        world.chain(name, end + 1)
    reseal(run, vendor)
    return world


def utc(text: str) -> float:
    """Return a time of RFC 3339 in seconds since the epoch."""
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()
