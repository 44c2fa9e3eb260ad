"""What the nightly needs to know, as `roles/nightly` writes it (nightly.json)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from shakedown.intent.slurm_block import AccessOption
from shakedown.records.base import Name, Record
from shakedown.records.shapes import shape


class Mail(Record):
    """Mail through a server that takes it without a password, as a site's own does."""

    to: tuple[str, ...] = Field(min_length=1)
    sender: str
    server: str = "localhost"
    port: int = Field(default=25, gt=0, lt=65536)
    only_if_needed: bool = False


class Webhook(Record):
    """A signed POST of the night as JSON."""

    url: Annotated[str, shape(r"^https?://", "an address of http or https", "https://ops.example.com/hook")]
    key_file: str
    only_if_needed: bool = False


class Delivery(Record):
    """Where reports go."""

    file: str | None = None
    textfile: str | None = None  # a .prom file in node_exporter's folder
    mail: Mail | None = None
    webhook: Webhook | None = None


class Draining(Record):
    """What may be done to nodes."""

    act: bool = False
    max_nodes: int = Field(default=2, ge=0)
    max_fraction: float = Field(default=0.1, ge=0, le=1)


class NightlyConfig(Record):
    """The nightly's configuration."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    checkout: str  # this project: playbooks/ and .venv/
    inventory: str
    state: str  # folder of rotation, lock, history, runs and drain log
    budget_s: float = Field(default=300, gt=0)  # that a node may be used a night
    group: int = Field(default=4, ge=3, le=64)
    node_tests_s: float = Field(default=120, gt=0)  # that the tests of a node by itself take, each section
    over: tuple[str, ...] = ()  # in front of Slurm's commands where they are elsewhere: ("ssh", "head")
    # sbatch options that make jobs lowest in priority, preemptable, and gone if they cannot start.
    access: tuple[AccessOption, ...] = ()
    wait_s: int = Field(default=1800, gt=0)  # that a job may wait for its nodes
    limit_s: int = Field(default=14400, gt=0)  # that the night may take
    max_jobs: int = Field(default=8, ge=1)
    exclude: tuple[Name, ...] = ()
    playbook_options: tuple[str, ...] = ()
    keep_runs_days: int = Field(default=90, ge=1)
    keep_history_days: int | None = Field(default=None, ge=31)
    drain: Draining = Draining()
    deliver: Delivery = Delivery()

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
