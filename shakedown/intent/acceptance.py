"""What an inventory asks to be accepted, and by what it is managed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field, StrictBool, create_model

from shakedown.records.base import Name, PlainPath, Record

# Some keys are of the whole file; each section belongs to a benchmark. Benchmarks come later in the order of
# the rooms, so `acceptance_model` makes the one model of the file from their sections.


@dataclass(frozen=True, kw_only=True)
class Section:
    """One key of `acceptance`."""

    key: str  # its name in the file
    kind: Any  # the type that pydantic holds it to
    absent: Any = None  # its value where the site does not ask for it
    of_each_node: bool = False  # nodes may differ in it, because each is measured by itself
    needs_fabric: bool = False  # it measures the network, so a site of single hosts cannot ask for it
    # Whether what is asked makes several nodes work together.
    joins_nodes: Callable[[Any], bool] = lambda _asked: False
    alone: str = ""  # how a site of single hosts asks for it instead
    reads_switches: bool = False  # it reads switches back, so what a switch cannot hold matters
    # It has `variables` of the communication libraries, which one run may change.
    takes_variables: bool = False


class Waits(Record):
    """How long a run waits for what is not its own, before it goes on without."""

    # Seconds that Slurm may leave questions without an answer before a stage's jobs are given up.
    slurm_silent_s: int = Field(default=600, ge=0)
    # Seconds that a stage's jobs may wait in Slurm's queue, all together; part of the stage's time limit.
    queue_s: int = Field(default=14400, ge=0)


class AcceptanceBase(Record):
    """The keys that all benchmarks share; `acceptance_model` adds the sections."""

    sections: ClassVar[tuple[Section, ...]] = ()

    profiles: tuple[Name, ...] = ()  # references beyond the fabric's own profile
    # Facts for matching references, such as gpu: H100-SXM.
    scope: dict[Name, int | str] = Field(default_factory=dict)
    # Seconds that one measurement of the mesh may take beyond its duration.
    measurement_timeout_s: int = Field(default=60, gt=0)
    # Retransmission timer of perftest's queue pairs (ibv_modify_qp, 4.096 us x 2^n); for slow hosts.
    qp_timeout: int | None = Field(default=None, ge=1, le=31)
    # Whether results of the mesh outside their gate are measured again at the end of their test, so that all
    # samples decide; false: the first result decides, and one low by chance fails a healthy cluster.
    measure_again: bool = True
    counter_tests: bool = True  # whether counters of NICs and switch ports are held to their references
    # Whether each NIC must be of a driver whose error counters are known; else the plan says which is not.
    known_nics_only: bool = False
    # Whether the fabric may reorder packets (adaptive routing, packet spraying): then a NIC that counts
    # packets out of sequence shows no loss.
    reorders: bool = False
    waits: Waits = Waits()  # how long a run waits for Slurm
    # Slurm jobs of a stage at a time, on different nodes; 1: one after the other. No more than the QOS lets a
    # user have (MaxJobsPerUser, MaxSubmitJobsPerUser).
    max_jobs: int = Field(default=64, ge=1, le=1024)
    caveats: tuple[str, ...] = ()  # what a reader of the report must know about this site

    def asked(self) -> Iterable[tuple[Section, Any]]:
        """Yield every section that the site asks for, with what it asks."""
        for section in self.sections:
            if value := getattr(self, section.key):
                yield section, value


def acceptance_model(sections: Iterable[Section]) -> type[AcceptanceBase]:
    """Return the model of the whole file: the shared keys and one for each section."""
    by_key = {section.key: section for section in sections}
    fields: dict[str, Any] = {key: (section.kind, section.absent) for key, section in by_key.items()}
    model = create_model("Acceptance", __base__=AcceptanceBase, **fields)
    model.sections = tuple(by_key.values())
    return model


# The `manage:` block of a site: what the playbooks may change. What they may not is only read.


class Manage(Record):
    """What of the site `playbooks/site.yml` may change; everything else is only read."""

    # MUNGE and Slurm are installed and configured; a slurm.conf or munge.key of somebody else's is refused.
    slurm: StrictBool = False
    # The submit host exports the stage folder by NFS, and the nodes mount it.
    shared_folder: StrictBool = False
    # perftest, OpenMPI and the tools that read and set NICs are installed from the system's packages.
    packages: StrictBool = False
    switches: StrictBool = False  # the RoCE class of the switches is configured and read back
    hosts: StrictBool = True  # NICs, PCIe and pinning of the hosts are set and read back


class Ownership(Record):
    """Variables of `group_vars/all` that the playbooks read and no plan depends on."""

    manage: Manage = Manage()
    # Folder of the stage: environment, checks and runs, on a file system that all nodes share.
    shared_stage_path: PlainPath | None = None
    shared_code_path: PlainPath | None = None  # of the programs, where nodes may only read them
