"""Whether Magnum already has a cluster of the environment's name, and whether it is the stack's own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuform.clouds.openstack.preflight.account import cli
from gpuform.clouds.openstack.preflight.project import Project
from gpuform.clouds.openstack.preflight.state_resources import Place
from gpuform.stack.preflight.check import Check, Judged
from infra.model.environment import Environment
from infra.plan.magnum import cluster_of

_FAILED = "_FAILED"
_GOING = "DELETE_IN_PROGRESS"


def checks(env: Environment, stack: str) -> Iterator[Check]:
    """One check: Magnum creates a second cluster of the same name without an error."""
    by_hand = f"{cli(cluster_of(env))} coe cluster show {env.name}"
    yield Check(f"cluster {env.name}", by_hand, partial(_judge, stack))


def _judge(stack: str, project: Project) -> Judged:
    unseen = project.unseen()
    elsewhere = next(_elsewhere(project, unseen), None)
    if elsewhere:
        return elsewhere
    own = project.own
    if own is None and unseen:
        fact = f"the stack's state has {unseen[0]}, but Magnum no longer has this cluster"
        return Judged("SKIP", fact, "`pulumi refresh` removes it from the state; the next `up` creates it")
    if own is None:
        return Judged("PASS", "none yet")
    if own.ours is False:
        fact = f"{own.id} already has this name, but is not in the stack's state"
        if project.state is not None and project.state.creating:
            begun = "an interrupted `up` was creating one, and the next continues it if it is ours"
            return Judged("SKIP", f"{fact}: {begun}", f"gpuform recover {stack}")
        return Judged(
            "FAIL", f"{fact}: it belongs to another stack or user", "give the environment another name"
        )
    if own.status == _GOING:
        return Judged("FAIL", "is being deleted", f"gpuform destroy {stack}, which waits until it is gone")
    if own.status.endswith(_FAILED):
        reason = str(own.cluster.get("status_reason") or "Magnum gives no reason")
        return Judged("SKIP", f"{own.status}: {reason}", "the next `up` repairs what it can")
    return Judged("PASS", f"{own.status}, {len(own.node_groups)} node groups")


def _elsewhere(project: Project, unseen: list[str]) -> Iterator[Judged]:
    """Clusters of the state in another project or region: `up` would recreate or duplicate them."""
    for id in unseen:
        place = project.state.places[id] if project.state else Place()
        places = (("project", place.project, project.id), ("region", place.region, project.cloud.region))
        for what, was, is_ in places:
            if was and is_ and was != is_:
                fact = f"the stack's state has {id} in {what} {was}, but the credentials are for {what} {is_}"
                fix = f"restore cluster.cloud, cluster.region or the OS_ variables, which selected {was}"
                yield Judged("FAIL", fact, fix)
