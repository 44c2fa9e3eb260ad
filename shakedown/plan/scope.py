"""What of a site is planned: all of it, or some of its nodes, rails and stages as a site of its own."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from shakedown.intent.places import expanded
from shakedown.intent.site import Site
from shakedown.plan.jobs import Jobs
from shakedown.plan.odds import power_words
from shakedown.records.base import Stage
from shakedown.records.plan import Plan, PlanItem, PlanScope
from shakedown.records.reading import BadInput, nearest
from shakedown.records.wording import natural_key

# With three nodes a slow pair shows which of its two ends is slow; and a ring of three has every pair.
FEWEST_NODES = 3
Mesh = Literal["quick", "full"]


@dataclass(frozen=True)
class WantedScope:
    """What a person wants measured; what is empty is all of it."""

    nodes: tuple[str, ...] = ()  # compute nodes that are judged
    rails: tuple[str, ...] = ()  # rails that are measured
    stages: tuple[Stage, ...] = ()  # rungs of the ladder
    # How many further nodes the nodes are measured with; None: as many as make three.
    partners: int | None = None
    # Quick: each node with its two neighbours in a ring; full: every pair rail by rail, also where the site
    # asks for less; None: as the site asks.
    mesh: Mesh | None = None


def narrowed_site(site: Site, wanted: WantedScope) -> tuple[Site, PlanScope | None]:
    """Return the part of the site that must be planned, partners included, and the words for it.

    Without words, nothing is left out by nodes, rails or the mesh, and no stage is named.
    """
    rails = wanted.rails or tuple(rail.name for rail in site.fabric.rails)
    nodes = wanted.nodes or tuple(sorted(site.nics, key=natural_key))
    fewest = max(FEWEST_NODES - len(nodes), 0) if wanted.partners is None else wanted.partners
    with_them = partners(site, nodes, fewest if wanted.nodes else 0)
    scope = PlanScope(
        nodes=nodes,
        of_nodes=len(site.nics),
        rails=rails,
        of_rails=len(site.fabric.rails),
        stages=wanted.stages,
        partners=with_them,
        mesh="quick" if wanted.mesh == "quick" and len({*nodes, *with_them}) > FEWEST_NODES else None,
    )
    if not (scope.stages or scope.mesh) and scope.of_nodes == len(nodes) and scope.of_rails == len(rails):
        return site, None
    return part_of(site, {*nodes, *with_them}, rails, nodes), scope


def narrowed_plan(plan: Plan, jobs: Jobs, scope: PlanScope) -> tuple[Plan, Jobs]:
    """Return plan and jobs without what is of partners alone or of other stages.

    Raises BadInput: nothing is left.
    """
    stages: Collection[Stage] = scope.stages or tuple(Stage)
    strangers = set(scope.partners)
    kept = [job for job in jobs.jobs if job.stage in stages and not strangers.issuperset(job.nodes)]
    # What no job measures any more is read from switches; a stage without jobs is not run at all.
    with_jobs = {job.stage for job in kept}
    items = [i for item in plan.items if item.stage in with_jobs and (i := _without(item, strangers))]
    if not items:
        said = ", ".join(scope.stages) or "any stage"
        raise BadInput(
            f"nothing of {said} is left to measure on {', '.join(scope.nodes[:3])}",
            fix="widen --nodes, --rails or --stage",
        )
    used = {item.reference for item in items}
    rails = {rail for item in items if item.required for rail in item.rails}
    # A rail that the whole plan measures, in a stage that is left out here, is no hole.
    elsewhere = {rail for item in plan.items if item.required for rail in item.rails} - rails
    part = plan.model_copy(
        update={
            "nodes": scope.nodes,
            "rails": tuple(rail for rail in plan.rails if rail not in elsewhere),
            "items": tuple(items),
            "references": {k: v for k, v in plan.references.items() if k in used},
            "scope": scope,
            "power": (),
        }
    )
    part = part.model_copy(update={"power": power_words(part)})
    return part, jobs.model_copy(update={"jobs": tuple(kept)})


def _without(item: PlanItem, strangers: Collection[str]) -> PlanItem | None:
    """Return the block without the cells that are of partners alone, if any is left."""
    nodes = tuple(group for group in item.nodes if not set(group) <= set(strangers))
    if len(nodes) == len(item.nodes):
        return item
    return item.model_copy(update={"nodes": nodes}) if nodes else None


def part_of(site: Site, nodes: Collection[str], rails: Collection[str], ports_of: Collection[str]) -> Site:
    """Return the site with these nodes and rails alone, and with the switch ports of `ports_of`.

    Of the links between switches those of their leaves are left, at both ends.
    """
    leaves = {nic.leaf for n in ports_of for nic in site.nics.get(n, ()) if nic.rail in rails}
    return site.model_copy(
        update={
            "fabric": site.fabric.model_copy(
                update={"rails": tuple(r for r in site.fabric.rails if r.name in rails)}
            ),
            "waivers": (),  # the caller's, who knows what is planned in all
            "own": {n: own for n, own in site.own.items() if n in nodes},
            "nics": {n: tuple(x for x in site.nics[n] if x.rail in rails) for n in site.nics if n in nodes},
            "addresses": {n: a for n, a in site.addresses.items() if n in nodes},
            "tcp_nics": {n: nics for n, nics in site.tcp_nics.items() if n in nodes},
            "gpus": {n: count for n, count in site.gpus.items() if n in nodes},
            "shared_gpus": tuple(n for n in site.shared_gpus if n in nodes),
            "switches": tuple(
                s.model_copy(
                    update={
                        "ports": tuple(p for p in s.ports if p[1] in ports_of and p[3] in rails),
                        "uplinks": tuple(u for u in s.uplinks if {s.name, u.peer} & leaves),
                    }
                )
                for s in site.switches
            ),
        }
    )


def named_nodes(site: Site, expressions: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes that Slurm's way of writing them names: `gpu[001-003,007],login1`.

    Raises BadInput: an expression that cannot be read, or a node that the site does not have.
    """
    names = list(dict.fromkeys(name for text in expressions for name in expanded(text, "--nodes")))
    return _known(names, sorted(site.nics, key=natural_key), "--nodes", "node")


def named_rails(site: Site, names: Sequence[str]) -> tuple[str, ...]:
    """Return rails by their names, `rail0,rail1` or one at a time. Raises BadInput for an unknown one."""
    split = list(dict.fromkeys(name for text in names for name in text.split(",")))
    return _known(split, [rail.name for rail in site.fabric.rails], "--rails", "rail")


def partners(site: Site, nodes: Collection[str], number: int) -> tuple[str, ...]:
    """Return nodes to measure with: those that share most leaves with `nodes`, in natural order.

    A partner on the same leaf keeps what is between the leaves out of the measurement.
    """
    leaves = Counter(nic.leaf for node in nodes for nic in site.nics[node] if nic.leaf)

    def shared(node: str) -> int:
        return sum(leaves[nic.leaf] for nic in site.nics[node] if nic.leaf)

    others = [n for n in sorted(site.nics, key=natural_key) if n not in nodes]
    chosen = sorted(others, key=lambda n: -shared(n))[:number]
    return tuple(sorted(chosen, key=natural_key))


def _known(names: Sequence[str], known: Sequence[str], option: str, what: str) -> tuple[str, ...]:
    for name in names:
        if name not in known:
            near = nearest(name, known)
            raise BadInput(
                f"{option} names {name[:80]!r}, which is no {what} of the site",
                fix=f"use {near}"
                if near
                else f"the site has {', '.join(known[:3]) or 'none'}{', ...' * (len(known) > 3)}",
            )
    return tuple(name for name in known if name in names)


# Variables of one run go over those of the site's own file, which stays as it is. The jobs hold them
# (jobs.json), and the plan says so in a caveat: such a run says nothing about the site as it is configured.

LONGEST_VALUE = 500


def with_variables(site: Site, variables: Mapping[str, str]) -> Site:
    """Return the site with variables for nccl-tests and PyTorch's collectives, for one run.

    Raises BadInput: a variable that is not of a communication library, a value that is no printable text, or
    a site without collectives that take variables.
    """
    if not variables:
        return site
    for name, value in variables.items():
        if not value.isprintable() or len(value) > LONGEST_VALUE:
            raise BadInput(f"the value of {name[:80]!r} is no printable text", fix="give NAME=VALUE")
    changed: dict[str, object] = {}
    for where, section in site.acceptance.asked():
        if not where.takes_variables:
            continue
        options = {**section.model_dump(), "variables": {**section.variables, **variables}}
        try:
            changed[where.key] = type(section).model_validate(options)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = str(first["loc"][1]) if len(first["loc"]) > 1 else "?"
            raise BadInput(
                f"{name[:80]!r} is no variable of a communication library",
                fix="give NCCL_*, UCX_*, OMPI_MCA_*, PMIX_MCA_* or CUDA_DEVICE_*",
            ) from None
    if not changed:
        takers = [f"acceptance.{s.key}" for s in site.acceptance.sections if s.takes_variables]
        raise BadInput(
            f"the site has neither {' nor '.join(takers)}, which alone take variables",
            fix="leave them out, or plan a site with collectives",
        )
    said = ", ".join(f"{name}={value}" for name, value in sorted(variables.items()))
    changed["caveats"] = (
        *site.acceptance.caveats,
        f"Set for this run alone, over the site's own file: {said}. It says nothing about the site as it is "
        "configured.",
    )
    return site.model_copy(update={"acceptance": site.acceptance.model_copy(update=changed)})
