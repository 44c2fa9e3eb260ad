"""The pages of the models: a site's files, a profile of references, and the files of a run."""

from __future__ import annotations

from pathlib import Path

import yaml
from generator.fields import Model, first_paragraph, inner_models, rows
from generator.text import code, made, sentence, table

from shakedown.benchmarks.registry import Acceptance
from shakedown.collect.server_watts import Bmc
from shakedown.daytwo.nightly.playbook import NightlyConfig
from shakedown.evidence.signatures import Order
from shakedown.intent.acceptance import Manage
from shakedown.intent.ordered import Ordered
from shakedown.intent.site import Fabric, NoFabric, TcpFabric, TcpNic
from shakedown.intent.slurm_block import SlurmBlock
from shakedown.intent.software import SoftwareSource
from shakedown.plan.jobs import JobSpec
from shakedown.records.plan import Plan
from shakedown.records.results import CounterReading, JobRecord, Measurement, OutputRecord, Snapshot
from shakedown.records.verdict import Certificate, Criteria, Verdict
from shakedown.references.catalogue import SCOPE_KEYS, Profile, ReferenceEntry
from shakedown.references.ceilings import Ceiling
from shakedown.run.server_power import PowerSample

# What the sections of a site's files are made from: heading, prefix of the keys, model.
SITE: tuple[tuple[str, str, Model], ...] = (
    ("`group_vars/all/fabric.yml`: the intent", "fabric.", Fabric),
    ("The intent of single hosts", "fabric.", NoFabric),
    ("`group_vars/all`: networks beside the RoCE fabric", "tcp_fabrics[].", TcpFabric),
    ("`hosts.yml`: a node's interfaces in them", "tcp_nics[].", TcpNic),
    ("`group_vars/all`: what the playbooks may change", "manage.", Manage),
    ("`group_vars/all`: how jobs are submitted", "slurm.", SlurmBlock),
    ("`group_vars/all/software.yml`: where a program is", "software.NAME.", SoftwareSource),
    ("`group_vars/all/ordered.yml`: what was bought", "ordered.", Ordered),
    ("`shakedown power --bmcs FILE`: the BMCs, outside the inventory", "bmcs.NODE.", Bmc),
    ("`group_vars/all/acceptance.yml`: what is measured", "acceptance.", Acceptance),
)
# Files of several sections, and what is said above them.
_INTRODUCTIONS = {"acceptance.": "First the keys of the whole file, then a section for each benchmark."}
RUN: tuple[tuple[str, Model], ...] = (
    ("`plan.json`: what must be measured, and against what", Plan),
    ("`jobs.json`, a job", JobSpec),
    ("`raw/JOB/job.json`", JobRecord),
    ("`raw/JOB/outputs*.jsonl`, a line", OutputRecord),
    ("`raw/server_power/NODE.jsonl`, a line", PowerSample),
    ("`results.jsonl`, a line", Measurement),
    ("`counters.jsonl`, a line", CounterReading),
    ("`inventory.json`", Snapshot),
    ("`verdict.json`", Verdict),
    ("`order.json`: what the customer signed before the run", Order),
    ("`criteria.yml`: what a contract asks", Criteria),
    ("`certificate.json`: the criteria, each answered", Certificate),
)
FORMULAS = inner_models(Ceiling)
# Meanings of keys whose model has neither a description nor a comment that says it.
MEANINGS: dict[str, str] = yaml.safe_load((Path(__file__).parent / "meanings.yml").read_text())
# Fields that the code which reads the file sets; `entries` are what stands under `references` in it.
_NOT_WRITTEN = ("references[].line", "entries")
HEAD = ("key", "type", "default", "meaning")


def pages() -> dict[str, str]:
    """Return the pages of the models."""
    return {
        "docs/reference/site.md": _site(),
        "docs/reference/references.md": _references(),
        "docs/reference/nightly.md": _nightly(),
        "docs/reference/run-files.md": _run(),
    }


def keys(model: Model, prefix: str) -> list[tuple[str, str, str, str]]:
    """Return the rows of a table. A key without a meaning has an empty one, which a test refuses."""
    return [
        (code(row.path), row.type, row.default, _meaning(row.path, row.meaning))
        for row in rows(model, prefix)
        if not row.path.startswith(_NOT_WRITTEN)
    ]


def _meaning(path: str, said: str) -> str:
    """Return what is written for the whole key, else what its model says, else by the key's last parts."""
    parts = path.split(".")
    names = (".".join(parts[start:]) for start in range(len(parts)))
    listed = next((MEANINGS[name] for name in names if name in MEANINGS), "")
    return sentence(MEANINGS[path] if path in MEANINGS and len(parts) > 1 else said or listed)


def _site() -> str:
    parts = [
        made("the models of the intent"),
        "# Every key of a site's files\n",
        "A key that is not listed here is refused. `[]` marks each element of a list. Host variables and the",
        "settings of a role are in the [roles' pages](roles.md): `fabric_nics` in",
        "[roce_host](../../roles/roce_host/README.md), `leaf_ports` in",
        "[roce_switch](../../roles/roce_switch/README.md). How to fill the files in:",
        "[Bring a new site](../how-to/new-site.md).\n",
    ]
    for heading, prefix, model in SITE:
        parts += [f"## {heading}\n", f"{_INTRODUCTIONS.get(prefix) or first_paragraph(model)}\n"]
        parts += _sections(prefix, keys(model, prefix))
    return "\n".join(parts)


def _sections(prefix: str, found: list[tuple[str, str, str, str]]) -> list[str]:
    """Return the keys of a file: one table, or first the plain keys and then one for each section."""
    if prefix not in _INTRODUCTIONS:
        return [table(HEAD, found)]
    by_section: dict[str, list[tuple[str, str, str, str]]] = {}
    for row in found:
        # `acceptance.lora[].model` is of acceptance.lora.
        section = row[0].strip("`").removeprefix(prefix).split(".")[0].removesuffix("[]")
        by_section.setdefault(section, []).append(row)
    plain = [rows[0] for rows in by_section.values() if len(rows) == 1]
    parts = [table(HEAD, plain)]
    for section, rows_of in by_section.items():
        if len(rows_of) > 1:
            parts += [f"### `{prefix}{section}`\n", table(HEAD, rows_of)]
    return parts


def _references() -> str:
    facts = [(code(name), {int: "whole number", str: "text"}[kind]) for name, kind in SCOPE_KEYS.items()]
    return "\n".join(
        [
            made("the models of the references"),
            "# A profile of references: `reframe_tests/references/NAME.yml`\n",
            "Why they look like this: [the decision](../decisions/references-format.md). To add one:",
            "[Add a reference](../how-to/add-a-reference.md).\n",
            "## The profile\n",
            table(HEAD, keys(Profile, "")),
            "## One reference of it\n",
            table(HEAD, keys(ReferenceEntry, "references[].")),
            "## Facts that `scope` may name\n",
            "A whole number may also be a range: `{min: 1048576}`, `{max: 8}`.\n",
            table(("fact", "type"), facts),
            "## Formulas that `value` and `ceiling` may name\n",
            *(_formula(model) for model in FORMULAS),
        ]
    )


def _formula(model: Model) -> str:
    found = keys(model, "")
    name = next(kind for key, kind, *_ in found if key == "`formula`")
    parameters = [row for row in found if row[0] != "`formula`"]
    return f"### {name}\n\n{first_paragraph(model)}\n\n{table(HEAD, parameters)}"


def _nightly() -> str:
    return "\n".join(
        [
            made("the model of the nightly's configuration"),
            "# `nightly.json`: the nightly's configuration\n",
            "The role [nightly](../../roles/nightly/README.md) writes this file from its variables. How to",
            "set the nightly up: [Nightly](../how-to/nightly.md).\n",
            table(HEAD, keys(NightlyConfig, "")),
        ]
    )


def _run() -> str:
    parts = [
        made("the records"),
        "# The files of a run: `reports/runs/RUN-ID/`\n",
        "Every file carries a schema version, and unknown fields are refused when it is read. Beside these:",
        "`raw/` holds every tool's own output; `shakedown report` writes `report.html`, `report.md`,",
        "`junit.xml` and `metrics.prom`; `shakedown seal` writes `SHA256SUMS` and `SHA256SUMS.sig`. A run",
        "that was ordered also has `order.json.sig`, `raw/chain.jsonl` (the jobs, in order), and in each",
        "job's folder `slurm.txt` (Slurm's own record) and, for each node, `signed.NODE.json` (digests of",
        "its outputs) and `signed.NODE.link.json` (its signature).\n",
    ]
    for heading, model in RUN:
        doc = first_paragraph(model)
        parts += [f"## {heading}\n", f"{doc}\n", table(HEAD, keys(model, ""))]
    return "\n".join(parts)
