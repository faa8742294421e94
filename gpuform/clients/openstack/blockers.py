"""What can keep Magnum from deleting a cluster: load balancers, ports, resources of its stack."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.clients.openstack.api import Api, Json

Resource = Mapping[str, Any]

_MAX_SHOWN = 10
_NEUTRON = "network:"


def list_blockers(api: Api, cluster: Mapping[str, Any]) -> list[str]:
    """One line for each resource that octavia, neutron and heat report; ``cluster`` is as from Magnum's API.

    A service that the cloud does not have, or that does not answer, adds nothing: this helps with an error,
    and must not raise another. Changes nothing.
    """
    lines: list[str] = []
    try:
        stack = _stack_resources(api, cluster)
    except (Failure, ValueError):
        stack = []
    for list_lines in (_load_balancers, _ports, _resources):
        try:
            lines += list(list_lines(api, cluster, stack))
        except (Failure, ValueError):  # ValueError: the answer is not JSON
            continue
    hidden = len(lines) - _MAX_SHOWN
    return lines[:_MAX_SHOWN] + ([f"and {hidden} more"] if hidden > 0 else [])


def _stack_resources(api: Api, cluster: Mapping[str, Any]) -> list[Resource]:
    """The resources of the cluster's heat stack, nested ones included; empty if it has no stack."""
    id = _stack_id(cluster)
    return api.list_all("heat", f"/stacks/{id}/resources", "resources", nested_depth=5) if id else []


def _load_balancers(api: Api, cluster: Mapping[str, Any], stack: list[Resource]) -> Iterator[str]:
    """Those of Services and Ingresses; the load balancer of the API server is a resource of the stack."""
    balancers = api.list_all("octavia", "/lbaas/loadbalancers", "loadbalancers")
    for balancer in load_balancers_of(balancers, cluster):
        status = balancer.get("provisioning_status")
        label = f"load balancer {balancer.get('name')} ({balancer['id']}, {status})"
        yield f"{label}: openstack loadbalancer delete --cascade {balancer['id']}"


def _ports(api: Api, cluster: Mapping[str, Any], stack: list[Resource]) -> Iterator[str]:
    """The stack's own ports, all ports in a network of the stack, and ports that name the cluster's uuid.

    After these, marked as uncertain, ports with the cluster's name as prefix: they belong to its node groups,
    which are stacks of their own, or to another cluster. Ports of neutron itself (``network:...``) are
    deleted with their network or router, not by a command.
    """
    uncertain: list[str] = []
    own_ids, networks = _resource_ids(stack, "::Neutron::Port"), _resource_ids(stack, "::Neutron::Net")
    for port in api.list_all("neutron", "/ports", "ports"):
        owner, text = port.get("device_owner") or "no owner", f"{port.get('description')} {port.get('name')}"
        in_stack_network = port.get("network_id") in networks and not owner.startswith(_NEUTRON)
        is_certain = port.get("id") in own_ids or in_stack_network or str(cluster.get("uuid")) in text
        note = "" if is_certain else ", matched by name only: check its owner"
        label = f"port {port.get('name')} ({port.get('id')}, of {owner}{note})"
        line = f"{label}: openstack port delete {port.get('id')}"
        if is_certain:
            yield line
        elif _has_name_of(port, cluster):
            uncertain.append(line)
    yield from uncertain


def _resources(api: Api, cluster: Mapping[str, Any], stack: list[Resource]) -> Iterator[str]:
    """Resources of the cluster's heat stack that are not deleted, or failed to be."""
    for resource in stack:
        if str(resource.get("resource_status")) in ("DELETE_FAILED", "DELETE_IN_PROGRESS"):
            yield (
                f"stack {_stack_id(cluster)}, resource {resource.get('resource_name')} "
                f"({resource.get('resource_type')} {resource.get('physical_resource_id') or ''}): "
                f"{resource.get('resource_status')} {resource.get('resource_status_reason') or ''}".rstrip()
            )


def _stack_id(cluster: Mapping[str, Any]) -> str:
    return str(cluster.get("stack_id") or cluster.get("cluster_id") or "")


def _resource_ids(stack: list[Resource], kind: str) -> set[str]:
    """Neutron's ids of the stack's resources of a kind.

    In Magnum's templates an optional kind has a name of its own: ``Magnum::Optional::Neutron::Net``
    (templates/network.yaml, until 31b84327).
    """
    resources = (resource for resource in stack if str(resource.get("resource_type")).endswith(kind))
    return {str(id) for resource in resources if (id := resource.get("physical_resource_id"))}


def _has_name_of(resource: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Whether a resource's name is the cluster's, or begins with it as Magnum's drivers do: ``name-...``."""
    name = str(cluster.get("name") or "")
    resource_name = str(resource.get("name") or "")
    return bool(name) and (resource_name == name or resource_name.startswith(f"{name}-"))


def load_balancers_of(balancers: Iterable[Json], cluster: Json) -> Iterator[Json]:
    """Load balancers with a description that ends in the id of the cluster or its stack, unless deleted.

    cloud-provider-openstack writes this description, and Magnum reads it (magnum/common/octavia.py). A name
    proves nothing: ``research-2-api`` does not belong to the cluster ``research``.
    """
    ids = "|".join(re.escape(str(id)) for key in ("uuid", "stack_id") if (id := cluster.get(key)))
    description = re.compile(rf"Kubernetes .+ from cluster (?:{ids})$")
    for balancer in balancers:
        is_own = description.match(str(balancer.get("description") or ""))
        if is_own and balancer.get("provisioning_status") != "DELETED":
            yield balancer
