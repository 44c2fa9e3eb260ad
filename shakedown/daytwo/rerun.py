"""Which part of a site to measure again after a run: what did not pass, or whose NICs are others now."""

from shakedown.discover.ask import Answers
from shakedown.intent.site import Site
from shakedown.judge.judged import JudgedRun
from shakedown.judge.verdict import decides
from shakedown.plan.scope import WantedScope
from shakedown.records.base import Outcome, Stage
from shakedown.records.plan import Plan
from shakedown.records.reading import BadInput
from shakedown.records.results import Snapshot
from shakedown.records.wording import natural_key

PARTNERS = 2  # with two good partners a pair that is slow again shows which of its ends is slow


def refuse_other_system(site: Site, plan: Plan) -> None:
    """Raise BadInput if a run is of another system than the site: node names are alike on many clusters."""
    if plan.system != site.fabric.system:
        raise BadInput(
            f"run {plan.run} is of system {plan.system!r}, the site is of {site.fabric.system!r}",
            fix="name the site of that run",
        )


def failed_part(site: Site, judged: JudgedRun) -> WantedScope:
    """Return the nodes, rails and stages of a run's cells that decide and did not pass.

    Of a pair whose slow end was found, only that end is measured again; of another pair, both. A collective
    over many nodes names none: it is measured again over those that other cells name, or over all of its own.
    Raises BadInput: everything passed, or a node or switch of the run is not in the site.
    """
    refuse_other_system(site, judged.run.plan)
    blamed = _blamed(judged)
    ends = {
        (switch.name, port): host for switch in site.switches for port, host, _netdev, _rail in switch.ports
    }
    nodes: set[str] = set()
    together: set[str] = set()
    rails: set[str] = set()
    stages: set[Stage] = set()
    switches = {switch.name for switch in site.switches}
    absent: set[str] = set()
    whole = False
    for block in judged.cells.items:
        for verdict, (_, names, rail, _) in zip(block.cells, block.item.cells(), strict=True):
            good = verdict.outcome in (Outcome.PASS, Outcome.WAIVED, Outcome.BASELINE)
            if good or not (block.item.required or decides(verdict, block.item)):
                continue
            if names[0] in site.absent_nodes:
                absent.add(names[0])  # there is nothing of it to measure yet
                continue
            stages.add(block.item.stage)
            rails |= {rail} if rail else set()
            whole = whole or rail is None
            if len(names) > 2:
                together.update(names)
            elif names[0] in switches:  # a port of a switch is its host's
                host = ends.get((names[0], str(block.item.params.get("port", ""))))
                nodes.update([host] if host else [n for n in site.nics if n in judged.run.plan.nodes])
            else:
                nodes.update(blamed.intersection(names) or names)
    nodes = nodes or together
    if absent and not stages:
        named = ", ".join(sorted(absent, key=natural_key)[:3])
        raise BadInput(f"only {named} did not pass, absent still", fix="describe it: shakedown discover")
    if not stages:
        raise BadInput("every required cell passed", fix="there is nothing to measure again")
    if strangers := sorted(nodes - set(site.nics)):
        raise BadInput(f"{strangers[0]} of the run is not in the site", fix="name the site of that run")
    everywhere = whole or rails >= {rail.name for rail in site.fabric.rails}
    return WantedScope(
        nodes=tuple(sorted(nodes, key=natural_key)),
        rails=() if everywhere else tuple(r.name for r in site.fabric.rails if r.name in rails),
        stages=tuple(stage for stage in Stage if stage in stages),
        partners=PARTNERS,
    )


def changed_part(site: Site, snapshot: Snapshot, answers: Answers) -> tuple[WantedScope, tuple[str, ...]]:
    """Return the nodes of which a fabric NIC is another than in a run, and what is different, in words.

    Args:
        site: the site as it is described now.
        snapshot: what the run was made on.
        answers: what the nodes answered now (`shakedown discover --record`).

    Raises BadInput: no NIC is another one, or neither side knows any NIC's MAC address.
    """
    then = {
        (one.host, one.attributes.get("netdev", one.name)): one.attributes.get("mac", "").lower()
        for one in snapshot.components
        if one.kind == "nic"
    }
    now = {(node, nic.netdev): nic.mac for node, answer in answers.nodes.items() for nic in answer.nics}
    words: dict[str, list[str]] = {}
    compared = 0
    for node, nics in site.nics.items():
        for nic in nics if node in answers.nodes else ():
            was, here = then.get((node, nic.netdev), ""), now.get((node, nic.netdev), "")
            compared += bool(was and here)
            if was and was != here and (here or (node, nic.netdev) not in now):
                found = f"its MAC address is {here}" if here else "it is not there"
                words.setdefault(node, []).append(
                    f"{node} {nic.netdev}: {found}, in run {snapshot.run} it was {was}"
                )
    if not words:
        if not compared:
            raise BadInput(
                f"no MAC address is known of both run {snapshot.run} and now",
                fix="record the answers with this release's discover",
            )
        raise BadInput(
            f"all {compared} NICs are those of run {snapshot.run}",
            fix="name the nodes yourself: shakedown plan SITE --nodes",
        )
    nodes = tuple(sorted(words, key=natural_key))
    return WantedScope(nodes=nodes, partners=PARTNERS), tuple(line for node in nodes for line in words[node])


def _blamed(judged: JudgedRun) -> set[str]:
    """Return the nodes that the localisation names as the cause."""
    names = set(judged.run.plan.nodes)
    return {word for cause in judged.causes if cause.blamed for word in cause.element.split()[1:2]} & names
