"""What can keep Magnum from deleting a cluster: load balancers, ports, resources of its stack."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.clients.openstack.api import Api, Json

Resource = Mapping[str, Any]

_SHOWN = 10
_NEUTRON = "network:"


def blockers(api: Api, cluster: Mapping[str, Any]) -> list[str]:
    """One line for each resource that octavia, neutron and heat report; ``cluster`` is as from Magnum's API.

    A service that the cloud does not have, or that does not answer, adds nothing: this helps with an error,
    and must not raise another. Changes nothing.
    """
    found: list[str] = []
    try:
        stack = _stack(api, cluster)
    except (Failure, ValueError):
        stack = []
    for look in (_load_balancers, _ports, _resources):
        try:
            found += list(look(api, cluster, stack))
        except (Failure, ValueError):  # ValueError: the answer is not JSON
            continue
    more = len(found) - _SHOWN
    return found[:_SHOWN] + ([f"and {more} more"] if more > 0 else [])


def _stack(api: Api, cluster: Mapping[str, Any]) -> list[Resource]:
    """The resources of the cluster's heat stack, nested ones included; empty if it has no stack."""
    id = _stack_id(cluster)
    return api.listed("heat", f"/stacks/{id}/resources", "resources", nested_depth=5) if id else []


def _load_balancers(api: Api, cluster: Mapping[str, Any], stack: list[Resource]) -> Iterator[str]:
    """Those of Services and Ingresses; the load balancer of the API server is a resource of the stack."""
    found = api.listed("octavia", "/lbaas/loadbalancers", "loadbalancers")
    for one in of_cluster(found, cluster):
        what = f"load balancer {one.get('name')} ({one['id']}, {one.get('provisioning_status')})"
        yield f"{what}: openstack loadbalancer delete --cascade {one['id']}"


def _ports(api: Api, cluster: Mapping[str, Any], stack: list[Resource]) -> Iterator[str]:
    """The stack's own ports, all ports in a network of the stack, and ports that name the cluster's uuid.

    After these, marked as uncertain, ports with the cluster's name as prefix: they belong to its node groups,
    which are stacks of their own, or to another cluster. Ports of neutron itself (``network:...``) are
    deleted with their network or router, not by a command.
    """
    doubtful: list[str] = []
    own, networks = _ids(stack, "::Neutron::Port"), _ids(stack, "::Neutron::Net")
    for one in api.listed("neutron", "/ports", "ports"):
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


def _resources(api: Api, cluster: Mapping[str, Any], stack: list[Resource]) -> Iterator[str]:
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


def of_cluster(found: Iterable[Json], cluster: Json) -> Iterator[Json]:
    """Load balancers with a description that ends in the id of the cluster or its stack, unless deleted.

    cloud-provider-openstack writes this description, and Magnum reads it (magnum/common/octavia.py). A name
    proves nothing: ``research-2-api`` does not belong to the cluster ``research``.
    """
    ids = "|".join(re.escape(str(id)) for key in ("uuid", "stack_id") if (id := cluster.get(key)))
    mark = re.compile(rf"Kubernetes .+ from cluster (?:{ids})$")
    for one in found:
        if one.get("provisioning_status") != "DELETED" and mark.match(str(one.get("description") or "")):
            yield one
