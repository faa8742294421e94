"""The caller's identity, the region, whether Magnum is new enough, and has a cluster of that name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuform.checkout.errors import Failure, InputError
from gpuform.clients.openstack.cloud import MICROVERSION
from gpuform.clouds.openstack.preflight.project import ClusterPlace, Project
from gpuform.stack.preflight.check import Check, Result
from infra.model.base.quantities import version_numbers
from infra.model.environment import Environment
from infra.model.openstack.cluster import OpenstackCluster
from infra.plan.magnum import cluster_of

_MAGNUM_TYPES = ("container-infra", "container-infrastructure-management", "container-infrastructure")
"""Magnum's service types in a catalogue: its own name, and the aliases that openstacksdk accepts."""
_NODE_GROUPS, _RELEASE = "1.9", "12.0.0 (Wallaby)"
"""Magnum's REST API version history; release 11.2.1 reports 1.9, and 12.0.0 reports 1.10."""


def openstack_cli(cluster: OpenstackCluster) -> str:
    """The ``openstack`` command with the options for the same cloud."""
    cloud = f" --os-cloud {cluster.cloud}" if cluster.cloud else ""
    return f"openstack{cloud}" + (f" --os-region-name {cluster.region}" if cluster.region else "")


def first_checks(cluster: OpenstackCluster) -> Iterator[Check]:
    """The checks that all others need: after a failure nothing more is checked."""
    cli, region = openstack_cli(cluster), f"region {cluster.region}" if cluster.region else "region"
    yield Check("credentials", f"{cli} token issue", _judge_credentials)
    yield Check(region, f"{cli} catalog list", _judge_region)
    yield Check("Magnum", f"{cli} coe service list", _judge_magnum)
    yield Check("Magnum's API", f"{cli} versions show --service container-infra", _judge_version)


def _judge_credentials(project: Project) -> Result:
    try:
        access = project.access
    except (InputError, Failure) as error:
        return Result("FAIL", error.fact, error.remedy)
    user = access.username or access.user_id
    project_name = access.project_name or access.project_id
    if not project_name:
        fact = f"{user} is authenticated, but without a project: nothing can be created"
        return Result("FAIL", fact, "name it: auth.project_name in clouds.yaml, or OS_PROJECT_NAME")
    return Result("PASS", f"project {project_name} as {user}")


def _judge_region(project: Project) -> Result:
    wanted = project.cloud.region
    known = project.regions()
    if not wanted:
        if len(known) < 2:
            return Result("PASS", known[0] if known else "the cloud has no named region")
        fact = f"no region is set, and the cloud has {', '.join(known)}"
        return Result("FAIL", fact, "write one as cluster.region, or as region_name in clouds.yaml")
    if wanted not in known:
        fact = f"the catalogue has no {wanted}"
        return Result("FAIL", fact, f"write another one as cluster.region: {', '.join(known)}")
    return Result("PASS", wanted)


def _judge_magnum(project: Project) -> Result:
    url = project.endpoint(_MAGNUM_TYPES)
    if url:
        return Result("PASS", url)
    services = ", ".join(project.services()) or "none"
    fact = f"the catalogue has no {_MAGNUM_TYPES[0]} here; its services: {services}"
    return Result("FAIL", fact, "use a cloud or a region with Magnum (OpenStack's container infrastructure)")


def _judge_version(project: Project) -> Result:
    newest = project.cloud.newest_api_version()
    if version_numbers(newest) >= version_numbers(MICROVERSION):
        return Result("PASS", f"{newest}; {MICROVERSION} is needed")
    fact = f"API too old: {newest}, node groups need {_NODE_GROUPS} and empty groups {MICROVERSION}"
    return Result("FAIL", fact, f"use a cloud with Magnum {_RELEASE} or newer")


_FAILED = "_FAILED"
_DELETING = "DELETE_IN_PROGRESS"


def cluster_check(env: Environment, stack: str) -> Iterator[Check]:
    """One check: Magnum creates a second cluster of the same name without an error."""
    by_hand = f"{openstack_cli(cluster_of(env))} coe cluster show {env.name}"
    yield Check(f"cluster {env.name}", by_hand, partial(_judge_cluster, stack))


def _judge_cluster(stack: str, project: Project) -> Result:
    missing = project.missing_clusters()
    other_place = next(_other_places(project, missing), None)
    if other_place:
        return other_place
    existing = project.existing
    if existing is None and missing:
        fact = f"the stack's state has {missing[0]}, but Magnum no longer has this cluster"
        return Result("SKIP", fact, "`pulumi refresh` removes it from the state; the next `up` creates it")
    if existing is None:
        return Result("PASS", "none yet")
    if existing.is_in_state is False:
        fact = f"{existing.id} already has this name, but is not in the stack's state"
        if project.state is not None and project.state.creating:
            interrupted = "an interrupted `up` was creating one, and the next continues it if it is ours"
            return Result("SKIP", f"{fact}: {interrupted}", f"gpuform recover {stack}")
        fact += ": it belongs to another stack or user"
        return Result("FAIL", fact, "give the environment another name")
    if existing.status == _DELETING:
        return Result("FAIL", "is being deleted", f"gpuform destroy {stack}, which waits until it is gone")
    if existing.status.endswith(_FAILED):
        reason = str(existing.cluster.get("status_reason") or "Magnum gives no reason")
        return Result("SKIP", f"{existing.status}: {reason}", "the next `up` repairs what it can")
    return Result("PASS", f"{existing.status}, {len(existing.node_groups)} node groups")


def _other_places(project: Project, missing: list[str]) -> Iterator[Result]:
    """Clusters of the state in another project or region: `up` would recreate or duplicate them."""
    for id in missing:
        place = project.state.places[id] if project.state else ClusterPlace()
        places = (("project", place.project, project.id), ("region", place.region, project.cloud.region))
        for kind, recorded, current in places:
            if recorded and current and recorded != current:
                fact = f"the stack's state has {id} in {kind} {recorded}"
                fact += f", but the credentials are for {kind} {current}"
                fix = f"restore cluster.cloud, cluster.region or the OS_ variables, which selected {recorded}"
                yield Result("FAIL", fact, fix)
