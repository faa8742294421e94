"""What can keep Magnum from deleting a cluster: load balancers, ports, resources of its stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.clients.openstack import balancers
from gpuform.clients.openstack.api import next_page
from gpuform.clients.openstack.cloud import Cloud, answers

Resource = Mapping[str, Any]

_SHOWN = 10
_NEUTRON = "network:"


def blockers(cloud: Cloud, cluster: Mapping[str, Any]) -> list[str]:
    """One line for each resource that octavia, neutron and heat report; ``cluster`` is as from Magnum's API.

    A service that the cloud does not have, or that does not answer, adds nothing: this helps with an error,
    and must not raise another. Changes nothing.
    """
    found: list[str] = []
    try:
        stack = list(_stack(cloud, cluster))
    except Failure:
        stack = []
    for look in (_load_balancers, _ports, _resources):
        try:
            found += list(look(cloud, cluster, stack))
        except Failure:
            continue
    more = len(found) - _SHOWN
    return found[:_SHOWN] + ([f"and {more} more"] if more > 0 else [])


def _stack(cloud: Cloud, cluster: Mapping[str, Any]) -> list[Resource]:
    """The resources of the cluster's heat stack, nested ones included; empty if it has no stack."""
    id = _stack_id(cluster)
    path = f"/stacks/{id}/resources"
    return _ask(cloud, "orchestration", path, "resources", {"nested_depth": 5}) if id else []


def _load_balancers(cloud: Cloud, cluster: Mapping[str, Any], stack: list[Resource]) -> Iterator[str]:
    """Those of Services and Ingresses; the load balancer of the API server is a resource of the stack."""
    found = _ask(cloud, "load-balancer", "/v2/lbaas/loadbalancers", "loadbalancers")
    for one in balancers.of_cluster(found, cluster):
        what = f"load balancer {one.get('name')} ({one['id']}, {one.get('provisioning_status')})"
        yield f"{what}: openstack loadbalancer delete --cascade {one['id']}"


def _ports(cloud: Cloud, cluster: Mapping[str, Any], stack: list[Resource]) -> Iterator[str]:
    """The stack's own ports, all ports in a network of the stack, and ports that name the cluster's uuid.

    After these, marked as uncertain, ports with the cluster's name as prefix: they belong to its node groups,
    which are stacks of their own, or to another cluster. Ports of neutron itself (``network:...``) are
    deleted with their network or router, not by a command.
    """
    doubtful: list[str] = []
    own, networks = _ids(stack, "::Neutron::Port"), _ids(stack, "::Neutron::Net")
    for one in _ask(cloud, "network", "/v2.0/ports", "ports"):
        owner, said = one.get("device_owner") or "no owner", f"{one.get('description')} {one.get('name')}"
        inside = one.get("network_id") in networks and not owner.startswith(_NEUTRON)
        certain = one.get("id") in own or inside or str(cluster.get("uuid")) in said
        doubt = "" if certain else ", matched by name only: check its owner"
        what = f"port {one.get('name')} ({one.get('id')}, of {owner}{doubt})"
        line = f"{what}: openstack port delete {one.get('id')}"
        if certain:
            yield line
        elif _named(one, cluster):
            doubtful.append(line)
    yield from doubtful


def _resources(cloud: Cloud, cluster: Mapping[str, Any], stack: list[Resource]) -> Iterator[str]:
    """Resources of the cluster's heat stack that are not deleted, or failed to be."""
    for one in stack:
        if str(one.get("resource_status")) in ("DELETE_FAILED", "DELETE_IN_PROGRESS"):
            yield (
                f"stack {_stack_id(cluster)}, resource {one.get('resource_name')} "
                f"({one.get('resource_type')} {one.get('physical_resource_id') or ''}): "
                f"{one.get('resource_status')} {one.get('resource_status_reason') or ''}".rstrip()
            )


def _stack_id(cluster: Mapping[str, Any]) -> str:
    return str(cluster.get("stack_id") or cluster.get("cluster_id") or "")


def _ids(stack: list[Resource], kind: str) -> set[str]:
    """Neutron's ids of the stack's resources of a kind.

    In Magnum's templates an optional kind has a name of its own: ``Magnum::Optional::Neutron::Net``
    (templates/network.yaml, until 31b84327).
    """
    made = (one for one in stack if str(one.get("resource_type")).endswith(kind))
    return {str(id) for one in made if (id := one.get("physical_resource_id"))}


def _named(one: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Whether a resource's name is the cluster's, or begins with it as Magnum's drivers do: ``name-...``."""
    name = str(cluster.get("name") or "")
    own = str(one.get("name") or "")
    return bool(name) and (own == name or own.startswith(f"{name}-"))


def _ask(
    cloud: Cloud, service: str, path: str, key: str, asked: Mapping[str, Any] | None = None
) -> list[Any]:
    """All pages of a list; empty if the cloud has no such service. Raises Failure as `answers`."""
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
