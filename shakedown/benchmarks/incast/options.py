"""What acceptance asks of incast."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from shakedown.records.base import Record

Pattern = Literal["incast", "all_to_all"]


class Incast(Record):
    """Several nodes that send to one NIC at once, and groups in which every node sends to all others."""

    # Many nodes to one, and every node of a group to all others.
    patterns: tuple[Pattern, ...] = Field(default=("incast",), min_length=1)
    # ib_write_bw or ib_send_bw: what the senders run.
    operation: Literal["write", "send"] = "write"
    # So many nodes send to one at once, fewer where the site is smaller; a group of all-to-all has one more.
    senders: int = Field(default=7, ge=2, le=63)
    # So many nodes of the site receive in incast, one after the other, spread over all of them.
    receivers: int = Field(default=8, ge=1, le=1024)
    # Of one message, in bytes.
    size_bytes: int = Field(default=1048576, ge=4096, le=1 << 30)
    # Seconds of each measurement; perftest counts the middle half of it.
    duration_s: int = Field(default=10, ge=2, le=600)

    @field_validator("patterns")
    @classmethod
    def _each_once(cls, named: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(named)) < len(named):
            raise ValueError("names one twice; once is enough")
        return named
