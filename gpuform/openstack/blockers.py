"""What can keep Magnum from deleting a cluster: load balancers, ports, resources of its stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.errors import Failure
from gpuform.openstack import balancers
from gpuform.openstack.api import next_page
from gpuform.openstack.cloud import Cloud, answers

_SHOWN = 10


def blockers(cloud: Cloud, cluster: Mapping[str, Any]) -> list[str]:
    """One line each for what octavia, neutron and heat name of a cluster, as Magnum's API describes it.

    A service that the cloud does not have, or that does not answer, adds nothing: this is help with an error,
    and must not become another. Nothing is changed.
    """
    found: list[str] = []
    for look in (_load_balancers, _ports, _resources):
        try:
            found += list(look(cloud, cluster))
        except Failure:
            continue
    more = len(found) - _SHOWN
    return found[:_SHOWN] + ([f"and {more} more"] if more > 0 else [])


def _load_balancers(cloud: Cloud, cluster: Mapping[str, Any]) -> Iterator[str]:
    """Those of Services and Ingresses; the API's own, if it is in the way, is a resource of the stack."""
    found = _ask(cloud, "load-balancer", "/v2/lbaas/loadbalancers", "loadbalancers")
    for one in balancers.of_cluster(found, cluster):
        what = f"load balancer {one.name} ({one.id}, {one.status})"
        yield f"{what}: openstack loadbalancer delete --cascade {one.id}"


def _ports(cloud: Cloud, cluster: Mapping[str, Any]) -> Iterator[str]:
    """Ports that bear the cluster's name or uuid; those of a network that it shares are not told apart."""
    for one in _ask(cloud, "network", "/v2.0/ports", "ports"):
        said = f"{one.get('description') or ''} {one.get('name') or ''}"
        if str(cluster.get("uuid")) in said or _named(one, cluster):
            owner = one.get("device_owner") or "nobody"
            what = f"port {one.get('name')} ({one.get('id')}, of {owner})"
            yield f"{what}: openstack port delete {one.get('id')}"


def _resources(cloud: Cloud, cluster: Mapping[str, Any]) -> Iterator[str]:
    """What of the cluster's heat stack is not gone because it failed."""
    stack = cluster.get("stack_id") or cluster.get("cluster_id")
    if not stack:
        return
    path = f"/stacks/{stack}/resources"
    for one in _ask(cloud, "orchestration", path, "resources", {"nested_depth": 5}):
        if str(one.get("resource_status")) in ("DELETE_FAILED", "DELETE_IN_PROGRESS"):
            yield (
                f"stack {stack}, resource {one.get('resource_name')} ({one.get('resource_type')} "
                f"{one.get('physical_resource_id') or ''}): {one.get('resource_status')} "
                f"{one.get('resource_status_reason') or ''}".rstrip()
            )


def _named(one: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Whether a thing bears the cluster's name as heat gives it: ``name-...``."""
    name = str(cluster.get("name") or "")
    own = str(one.get("name") or "")
    return bool(name) and (own == name or own.startswith(f"{name}-"))


def _ask(
    cloud: Cloud, service: str, path: str, key: str, asked: Mapping[str, Any] | None = None
) -> list[Any]:
    """A list of a service, all pages of it. Raises Failure where there is no such service, or it refuses."""
    with answers(f"openstack {service}"):
        session = cloud.session
        address = session.get_endpoint(service_type=service, region_name=cloud.region or None)
        if not address:
            return []
        base = str(address).rstrip("/")
        version = path.split("/")[1]
        base = base.removesuffix(f"/{version}") if version.startswith("v") else base
        found: list[Any] = []
        more: dict[str, Any] | None = dict(asked or {})
        while more is not None:
            said = session.get(base + path, params=more, headers={"Accept": "application/json"})
            try:
                page = said.json()
            except ValueError:
                break
            found += page.get(key) or []
            more = next_page(page, key, more)
        return found
