"""What holds a cluster that Magnum does not get deleted, as far as the cloud's services say it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpuform.errors import Failure
from gpuform.openstack.api import Api, Json

_SHOWN = 5
_NETWORK = "OS::Neutron::Net"
_OF_NEUTRON = ("network:dhcp", "network:distributed")
"""Owners of ports that go with their network (neutron-lib, constants)."""


def why(api: Api, cluster_id: str) -> list[str]:
    """One line for each thing that holds the cluster: Magnum's own reason, the Heat stack's resources that
    did not go, load balancers and ports in its network. A service that does not answer is named as such.

    Heat knows clusters of Magnum's Heat driver alone; a network that a cluster was given is not looked into.
    """
    cluster = api.find("magnum", f"/clusters/{cluster_id}")
    if cluster is None:
        return []
    lines = list(_of_magnum(cluster))
    stack = str(cluster.get("stack_id") or "")
    networks: list[str] = []

    def of_heat() -> Iterator[str]:
        for one in _resources(api, stack):
            if one.get("resource_type") == _NETWORK and one.get("physical_resource_id"):
                networks.append(str(one["physical_resource_id"]))
            status = str(one.get("resource_status"))
            if not status.endswith("_COMPLETE"):
                reason = str(one.get("resource_status_reason") or "no reason given")
                yield f"stack resource {one['resource_name']} ({one['resource_type']}) {status}: {reason}"

    lines += _asked("heat", of_heat)
    lines += _asked("octavia", lambda: map(str, load_balancers(api, cluster)))
    lines += _asked("neutron", lambda: _ports(api, networks))
    return lines


def _asked(service: str, look: Callable[[], Iterator[str]]) -> list[str]:
    try:
        found = list(look())
    except Failure as failure:
        return [f"{service} was not asked: {failure.fact}"]
    more = [f"and {len(found) - _SHOWN} more that {service} has"] if len(found) > _SHOWN else []
    return found[:_SHOWN] + more


def _of_magnum(cluster: Json) -> Iterator[str]:
    yield f"Magnum has the cluster as {cluster.get('status')}"
    if reason := cluster.get("status_reason"):
        yield f"its reason: {' '.join(str(reason).split())}"
    for group, fault in sorted((cluster.get("faults") or {}).items()):
        if fault and fault != cluster.get("status_reason"):
            yield f"node group {group}: {' '.join(str(fault).split())}"


def _resources(api: Api, stack: str) -> list[Json]:
    """The stack's resources, nested ones too; none where Heat has no such stack."""
    if not stack:
        return []
    found = api.find("heat", f"/stacks/{stack}")
    if found is None:
        return []
    name, id = found["stack"]["stack_name"], found["stack"]["id"]
    return api.listed("heat", f"/stacks/{name}/{id}/resources", "resources", nested_depth=2)


@dataclass(frozen=True)
class LoadBalancer:
    """One of a Service's or an Ingress's; ``going``: octavia is at it already."""

    id: str
    why: str
    going: bool

    def __str__(self) -> str:
        return f"load balancer {self.id} ({self.why})"


def load_balancers(api: Api, cluster: Json) -> Iterator[LoadBalancer]:
    """Those that Kubernetes made for Services and Ingresses of the cluster: their description ends in its id,
    or in its stack's, as cloud-provider-openstack writes it and Magnum itself reads it (common/octavia.py).
    """
    ids = "|".join(re.escape(str(id)) for key in ("uuid", "stack_id") if (id := cluster.get(key)))
    mark = re.compile(rf"Kubernetes .+ from cluster (?:{ids})$")
    for one in api.listed("octavia", "/lbaas/loadbalancers", "loadbalancers"):
        status, said = str(one.get("provisioning_status")), str(one.get("description") or "")
        if status != "DELETED" and mark.match(said):
            yield LoadBalancer(str(one["id"]), said, status == "PENDING_DELETE")


def _ports(api: Api, networks: list[str]) -> Iterator[str]:
    for network in networks:
        for one in api.listed("neutron", "/ports", "ports", network_id=network):
            owner = str(one.get("device_owner") or "nobody")
            if not owner.startswith(_OF_NEUTRON):
                name = f" {one['name']}" if one.get("name") else ""
                yield f"port {one['id']}{name} of {owner} {one.get('device_id') or ''}".rstrip()
