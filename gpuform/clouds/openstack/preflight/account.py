"""The caller's identity, the region, whether Magnum is new enough, and has a cluster of that name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuform.checkout.errors import Failure, InputError
from gpuform.clients.openstack.cloud import MICROVERSION
from gpuform.clouds.openstack.preflight.project import Place, Project
from gpuform.stack.preflight.check import Check, Judged
from infra.model.amounts import numbers
from infra.model.environment import Environment
from infra.model.openstack import OpenstackCluster
from infra.plan.magnum import cluster_of

_MAGNUM = ("container-infra", "container-infrastructure-management", "container-infrastructure")
"""Magnum's service types in a catalogue: its own name, and the aliases that openstacksdk accepts."""
_NODE_GROUPS, _RELEASE = "1.9", "12.0.0 (Wallaby)"
"""Magnum's REST API version history; release 11.2.1 reports 1.9, and 12.0.0 reports 1.10."""


def cli(cluster: OpenstackCluster) -> str:
    """The ``openstack`` command with the options for the same cloud."""
    cloud = f" --os-cloud {cluster.cloud}" if cluster.cloud else ""
    return f"openstack{cloud}" + (f" --os-region-name {cluster.region}" if cluster.region else "")


def first(cluster: OpenstackCluster) -> Iterator[Check]:
    """The checks that all others need: after a failure nothing more is checked."""
    yield Check("credentials", f"{cli(cluster)} token issue", _credentials)
    yield Check(
        f"region {cluster.region}" if cluster.region else "region", f"{cli(cluster)} catalog list", _region
    )
    yield Check("Magnum", f"{cli(cluster)} coe service list", _magnum)
    yield Check("Magnum's API", f"{cli(cluster)} versions show --service container-infra", _version)


def _credentials(project: Project) -> Judged:
    try:
        said = project.access
    except InputError as missing:
        return Judged("FAIL", missing.fact, missing.remedy)
    except Failure as failure:
        return Judged("FAIL", failure.fact, failure.remedy)
    who = said.username or said.user_id
    where = said.project_name or said.project_id
    if not where:
        fact = f"{who} is authenticated, but without a project: nothing can be created"
        return Judged("FAIL", fact, "name it: auth.project_name in clouds.yaml, or OS_PROJECT_NAME")
    return Judged("PASS", f"project {where} as {who}")


def _region(project: Project) -> Judged:
    wanted = project.cloud.region
    known = project.regions()
    if not wanted:
        if len(known) < 2:
            return Judged("PASS", known[0] if known else "the cloud has no named region")
        fact = f"no region is set, and the cloud has {', '.join(known)}"
        return Judged("FAIL", fact, "write one as cluster.region, or as region_name in clouds.yaml")
    if wanted not in known:
        fact = f"the catalogue has no {wanted}"
        return Judged("FAIL", fact, f"write another one as cluster.region: {', '.join(known)}")
    return Judged("PASS", wanted)


def _magnum(project: Project) -> Judged:
    url = project.endpoint(_MAGNUM)
    if url:
        return Judged("PASS", url)
    there = ", ".join(project.services()) or "none"
    fact = f"the catalogue has no {_MAGNUM[0]} here; its services: {there}"
    return Judged("FAIL", fact, "use a cloud or a region with Magnum (OpenStack's container infrastructure)")


def _version(project: Project) -> Judged:
    newest = project.cloud.newest_api()
    if numbers(newest) >= numbers(MICROVERSION):
        return Judged("PASS", f"{newest}; {MICROVERSION} is needed")
    fact = f"API too old: {newest}, node groups need {_NODE_GROUPS} and empty groups {MICROVERSION}"
    return Judged("FAIL", fact, f"use a cloud with Magnum {_RELEASE} or newer")


_FAILED = "_FAILED"
_GOING = "DELETE_IN_PROGRESS"


def cluster(env: Environment, stack: str) -> Iterator[Check]:
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
