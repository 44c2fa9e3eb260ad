"""Parts of a site: some of its nodes and rails, described as a site of its own."""

from collections import Counter
from collections.abc import Collection, Sequence

from shakedown.intent.places import expanded
from shakedown.intent.site import Site
from shakedown.records.reading import BadInput, nearest
from shakedown.records.wording import natural_key


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
