"""The `manage:` block of a site: what the playbooks may change. What they may not is only read."""

from __future__ import annotations

from pydantic import StrictBool

from shakedown.records.base import Record
from shakedown.records.shapes import PlainPath


class Manage(Record):
    """What of the site `playbooks/site.yml` may change; everything else is only read."""

    # MUNGE and Slurm are installed and configured; a slurm.conf or munge.key of somebody else's is refused.
    slurm: StrictBool = False
    # The submit host exports the stage folder by NFS, and the nodes mount it.
    shared_folder: StrictBool = False
    # perftest, OpenMPI and the tools that read and set NICs are installed from the system's packages.
    packages: StrictBool = False
    # The RoCE class of the switches is configured and read back.
    switches: StrictBool = False
    # NICs, PCIe and pinning of the hosts are set and read back.
    hosts: StrictBool = True


class Ownership(Record):
    """Variables of `group_vars/all` that the playbooks read and no plan depends on."""

    manage: Manage = Manage()
    # Folder of the stage: environment, checks and runs, on a file system that all nodes share.
    shared_stage_path: PlainPath | None = None
    shared_code_path: PlainPath | None = None  # of the programs, where nodes may only read them
