"""What a customer orders and signs: which plan, on which machines, until when (`order.json`)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from shakedown.records.base import Name, Params, Record, Stage
from shakedown.records.plan import Plan, Reference

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # SHA-256
# As ssh-keygen -l prints it.
Fingerprint = Annotated[str, Field(pattern=r"^SHA256:[A-Za-z0-9+/]{43}$")]
Moment = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]  # RFC 3339, UTC


class OrderedNode(Record):
    """A machine that may measure: what tells it from every other."""

    # What stands for machine-id(5), as the snapshot of the hosts has it; None: it was not known.
    machine: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    # Fingerprints of its SSH host keys.
    host_keys: tuple[Fingerprint, ...] = Field(min_length=1, max_length=16)


class OrderedTest(Record):
    """A block of planned cells, as far as it matters whether somebody took it out of the plan or eased it."""

    stage: Stage  # of the ladder
    test: Name  # its name
    metric: Name  # what it measures
    # What it is measured with.
    params: Params = Field(default_factory=dict)
    reference: Name  # what decides
    cells: int = Field(ge=0)  # how many
    required: bool  # whether the run cannot pass without them
    not_run: str | None = None  # why they will not be measured


class Order(Record):
    """An order: the plan by its digest, and what is needed to say how another plan differs from it."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    run: Name  # the plan's
    system: Name  # the plan's
    # Random: what bears it was made after the order was.
    nonce: Digest
    plan: Digest  # of plan.json's bytes
    jobs: Digest  # of jobs.json's bytes
    not_before: Moment  # what was measured earlier is not of this order
    not_after: Moment  # nor what was measured later
    # The machines that may measure.
    nodes: dict[Name, OrderedNode] = Field(min_length=1)
    # The host that submits the jobs, where it signs which ones there were.
    submit: OrderedNode | None = None
    # What the plan measures, so that a changed plan is told test by test.
    tests: tuple[OrderedTest, ...]
    # What decides, as the plan has it.
    references: dict[Name, Reference]

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def ordered_tests(plan: Plan) -> tuple[OrderedTest, ...]:
    """Return a plan's blocks of cells as an order has them."""
    return tuple(
        OrderedTest(
            stage=item.stage,
            test=item.test,
            metric=item.metric,
            params=item.params,
            reference=item.reference,
            cells=len(item),
            required=item.required,
            not_run=item.not_run,
        )
        for item in plan.items
    )
