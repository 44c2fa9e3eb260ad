"""`shakedown references lint|show|propose`: the figures that results are held to; can they hold?"""

from __future__ import annotations

import json
import re
import sys
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.arguments import assigned, command, group
from shakedown.records.reading import BadInput, ExitStatus
from shakedown.records.wording import in_unit

if TYPE_CHECKING:
    from shakedown.references.catalogue import Profile, ReferenceEntry

Profiles = Annotated[list[str] | None, typer.Argument(help="Names or files; none: all shipped ones.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


_references = group("references", "References: what a metric must reach, and who says so.")


@command(
    "shakedown references lint",
    "shakedown references lint tolly_xe9680_z9664f --plan reports/runs/lab/plan.json",
    of=_references,
)
def lint(
    profiles: Profiles = None,
    plan: Annotated[Path | None, typer.Option(help="Also find references that this plan never uses.")] = None,
    as_json: Json = False,
) -> int:
    """Find references that nothing can reach or that everything passes. Exit status 1 if there are any.

    A gate or value above its ceiling; a gate that half the rate, or one link at half rate, would pass; the
    same name or scope twice; a missing or unknown field; a unit that does not fit; with --plan, an entry that
    gates nothing.
    """
    from shakedown.records.plan import Plan
    from shakedown.records.reading import read_record
    from shakedown.references import files as reference_lint
    from shakedown.references import files as references_io

    findings, good = [], []
    for name in profiles or references_io.profile_names():
        path = references_io.profile_path(name)
        profile, wrong = references_io.read_profile(path)
        findings += wrong
        if profile is not None:
            good.append((str(path), profile))
    findings += reference_lint.lint(good, None if plan is None else read_record(plan, Plan))
    if as_json:
        fields = ("file", "line", "rule", "message")
        print(json.dumps([{name: getattr(f, name) for name in fields} for f in sorted(findings)], indent=2))
    else:
        for finding in sorted(findings):
            print(finding)
        entries = sum(len(profile.entries) for _, profile in good)
        print(f"{len(good)} profiles, {entries} references, {len(findings)} findings", file=sys.stderr)
    return ExitStatus.FAIL if findings else ExitStatus.PASS


@command(
    "shakedown references show tolly_xe9680_z9664f",
    "shakedown references show primergy_cdi --json",
    "shakedown references show tolly_xe9680_z9664f --reframe > references.yaml",
    of=_references,
)
def show(
    profiles: Profiles = None,
    as_json: Json = False,
    reframe: Annotated[
        bool, typer.Option("--reframe", help="Print ReFrame's external reference file (YAML) instead.")
    ] = False,
) -> int:
    """Print profiles: every reference with its gate, ceiling, kind and source."""
    from shakedown.references import files as references_io

    loaded = [references_io.load_profile(name) for name in profiles or references_io.profile_names()]
    if reframe:
        import yaml

        from shakedown.references.catalogue import Catalogue
        from shakedown.references.propose import reframe_references

        tree = reframe_references(Catalogue(loaded).entries.values())
        yaml.safe_dump(tree, sys.stdout, sort_keys=False, default_flow_style=None, width=120)
    elif as_json:
        print(json.dumps([_resolved(profile) for profile in loaded], indent=2))
    else:
        for profile in loaded:
            _print(profile)
    return ExitStatus.PASS


@command(
    "shakedown references propose reports/runs/roce --prefix mine --scope gpu=H200-SXM",
    "shakedown references propose reports/runs/roce --profile mine > mine.yml",
    of=_references,
)
def propose(
    run: Annotated[Path, typer.Argument(help="Run folder with results.jsonl.")],
    prefix: Annotated[
        str | None,
        typer.Option(help="Beginning of the references' names.", show_default="the profile's name"),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="Print a whole profile of this name, to be signed.")
    ] = None,
    scope: Annotated[list[str] | None, typer.Option(help="A fact of the site: gpu=H200-SXM.")] = None,
    ceiling_gb_per_s: Annotated[
        float | None, typer.Option(help="Rate of the link behind busbw, GB/s.")
    ] = None,
) -> int:
    """Print references that a run's repeats suggest, as YAML, for a person to correct and sign.

    To sign is to put one's name into `set_by`: a site's own profile is refused while it says `proposed`.
    """
    import yaml

    from shakedown.references.propose import MIN_SAMPLES, profile_of, proposals
    from shakedown.run.folder import Run

    words = assigned(scope or (), "KEY=VALUE", "gpu=H200-SXM", option="--scope")
    facts = {key: int(value) if value.isdigit() else value for key, value in words.items()}
    name = prefix or profile
    if not name or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", name):
        raise BadInput("no name that begins with a letter", fix="give --profile NAME or --prefix NAME")
    opened = Run(run)
    found = list(opened.measurements())
    made = list(proposals(found, scope=facts, prefix=name, ceiling_gb_per_s=ceiling_gb_per_s))
    if not made:
        raise BadInput(f"no value has {MIN_SAMPLES} repeats", fix="plan more repeats", file=run)
    held = {(one["test"], one["metric"]) for one in made}
    few = dict.fromkeys(f"{m.test} {m.metric}" for m in found if m.value and (m.test, m.metric) not in held)
    if few:
        print(f"left out, fewer than {MIN_SAMPLES} values: {', '.join(few)}", file=sys.stderr)
    written = made if profile is None else profile_of(profile, opened.plan, made)
    sys.stdout.write(yaml.safe_dump(written, sort_keys=False, default_flow_style=None, width=160))
    return ExitStatus.PASS


@command("shakedown references baseline mine.yml > baseline.diff", of=_references)
def baseline(
    profiles: Annotated[list[str], typer.Argument(help="Profiles in force: names or files.")],
    store: Annotated[Path, typer.Option(help="The history's folder.")] = Path("reports/history"),
    into: Annotated[
        Path | None, typer.Option(help="File that the diff creates or changes; default: SYSTEM_baseline.yml.")
    ] = None,
    min_nights: Annotated[int, typer.Option(min=6, help="With fewer nights nothing is proposed.")] = 14,
    min_nodes: Annotated[int, typer.Option(min=1, help="With fewer nodes nothing is proposed.")] = 2,
) -> int:
    """Print references that the fleet's own history supports, as a diff to review. Nothing is written.

    Exit status 0: there is a proposal; 2: the history supports none; 3: part of it was left out.
    """
    from shakedown.daytwo.history.fleet_references import diff
    from shakedown.daytwo.history.fleet_references import propose as make
    from shakedown.daytwo.history.store import HistoryStore
    from shakedown.references import files as references_io

    name = f"{HistoryStore(store).system}_baseline"
    path = into or references_io.PROFILES / f"{name}.yml"
    text, left = make(
        store,
        references_io.load_catalogue(profiles),
        profile=path.stem,
        min_nights=min_nights,
        min_nodes=min_nodes,
    )
    print(diff(path, text), end="")
    for line in left:
        print(f"left out: {line}", file=sys.stderr)
    return ExitStatus.INCOMPLETE if left else ExitStatus.PASS


@command("shakedown references cards reports/runs/first reports/runs/second", of=_references)
def cards(
    runs: Annotated[list[Path], typer.Argument(help="Run folders with gpu_rate, the oldest first.")],
) -> int:
    """Print what each GPU reached by UUID in runs that accepted it, as `acceptance.gpu_rate.own` holds it.

    Exit status 3: some GPU of a run was left out; standard error says which.
    """
    import yaml

    from shakedown.daytwo.history.fleet_references import accepted_cards

    found, left = accepted_cards(runs)
    for line in left:
        print(f"left out: {line}", file=sys.stderr)
    if not found:
        raise BadInput("no GPU of gpu_rate was accepted", fix="name runs that passed", file=runs[0])
    block = {"acceptance": {"gpu_rate": {"own": found}}}
    sys.stdout.write(yaml.safe_dump(block, sort_keys=False, default_flow_style=None, width=120))
    return ExitStatus.INCOMPLETE if left else ExitStatus.PASS


def _resolved(profile: Profile) -> dict[str, object]:
    """A profile as data, every formula beside its number."""
    entries = []
    for entry in profile.entries:
        reference = entry.reference()
        entries.append(
            entry.model_dump(mode="json", exclude={"line"}, exclude_none=True)
            | {"value": reference.value, "gate": reference.gate, "ceiling": reference.ceiling}
            | {"ceiling_source": reference.ceiling_source}
        )
    return profile.model_dump(mode="json", exclude={"entries"}, exclude_none=True) | {"references": entries}


def _print(profile: Profile) -> None:
    print(f"{profile.profile}: {profile.title}")
    print(f"published: {profile.published}")
    print(fill(f"audit: {profile.audit}", 110, subsequent_indent="  "))
    for (test, kind, source), entries in groupby(profile.entries, lambda e: (e.test, e.kind, e.source)):
        print(f"\n{test} ({kind.value}: {source})")
        rows = [_row(entry) for entry in entries]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  " + "  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)).rstrip())
    print()


def _row(entry: ReferenceEntry) -> tuple[str, ...]:
    from shakedown.records.base import Better
    from shakedown.references.propose import scope_key

    reference = entry.reference()
    side = ">=" if entry.better is Better.HIGHER else "<="
    ceiling = reference.ceiling
    return (
        entry.id,
        entry.metric,
        in_unit(f"{reference.value:.6g}", entry.unit),
        f"gate {side} {reference.gate:.6g}" if entry.gates else "does not gate",
        "" if ceiling is None else f"{100 * reference.value / ceiling:.1f} % of {ceiling:.5g}",
        scope_key(entry.scope),
    )
