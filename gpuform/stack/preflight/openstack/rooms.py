"""The quotas, as data: the call that reads each, what a node takes of it, who can raise it.

The calls are those of each service's API reference: nova and cinder ``/limits``, neutron
``/quotas/PROJECT/details.json``, octavia ``/lbaas/quotas/PROJECT``, Magnum ``/quotas/PROJECT/Cluster``
(without a quota it answers its default, ``quotas.max_clusters_per_project``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuform.stack.preflight.openstack.demand import floating_ips, groups
from gpuform.stack.preflight.openstack.needs import Amounts, Needs
from gpuform.stack.preflight.openstack.project import Project
from infra.model.environment import Environment
from infra.plan.magnum import cluster_of

Read = Callable[[Project], tuple[int | None, int]]
"""The limit (None if unlimited), and how much of it is taken."""


@dataclass(frozen=True)
class Room:
    """One quota; ``fix`` is a command for the cloud's administrators, who alone can raise it."""

    what: str
    read: Read
    needs: Callable[[Needs, bool], Amounts]
    by_hand: str
    fix: str
    concerns: Callable[[Environment], bool] = lambda env: True


def _limit(value: int | None) -> int | None:
    """-1 means no limit in every service; octavia may also answer null."""
    return None if value is None or value < 0 else value


def _absolute(service: str, limit: str, used: str) -> Read:
    def read(project: Project) -> tuple[int | None, int]:
        found = project.get(service, "/limits")["limits"]["absolute"]
        return _limit(found[limit]), found[used]

    return read


def _neutron(what: str) -> Read:
    def read(project: Project) -> tuple[int | None, int]:
        found = project.get("neutron", f"/quotas/{project.id}/details.json")["quota"][what]
        return _limit(found["limit"]), found["used"] + found.get("reserved", 0)

    return read


def _octavia(project: Project) -> tuple[int | None, int]:
    found = project.get("octavia", f"/lbaas/quotas/{project.id}")["quota"]
    limit = found.get("load_balancer", found.get("loadbalancer"))
    there = project.listed("octavia", "/lbaas/loadbalancers", "loadbalancers", project_id=project.id)
    return _limit(limit), len(there)


def _magnum(project: Project) -> tuple[int | None, int]:
    limit = project.get("magnum", f"/quotas/{project.id}/Cluster").get("hard_limit")
    return _limit(limit), len(project.listed("magnum", "/clusters", "clusters"))


def _with_volumes(env: Environment) -> bool:
    return any(group.volumes for group in groups(env))


def _maybe_balanced(env: Environment) -> bool:
    cluster = cluster_of(env)
    own = cluster.own_template
    if cluster.driver == "capi":
        return True
    return cluster.masters.lb if cluster.masters.lb is not None else own is None or own.master_lb


def _maybe_floating(env: Environment) -> bool:
    cluster = cluster_of(env)
    if cluster.driver == "capi":
        return floating_ips(env, 0, 1) > 0
    own = cluster.own_template
    given = cluster.network.floating_ip
    return given if given is not None else own is None or own.floating_ip


_NOVA, _CINDER, _PORTS = "limits show --absolute", "limits show --absolute", "quota show --network --usage"
_SET = "openstack quota set --{option} {{wanted}} {{project}} (by the cloud's administrators)"

ROOMS = (
    Room(
        "instances",
        _absolute("nova", "maxTotalInstances", "totalInstancesUsed"),
        lambda needs, most: needs.nodes(most, lambda group, flavor: 1),
        _NOVA,
        _SET.format(option="instances"),
    ),
    Room(
        "vCPUs",
        _absolute("nova", "maxTotalCores", "totalCoresUsed"),
        lambda needs, most: needs.nodes(most, lambda group, flavor: int(flavor["vcpus"])),
        _NOVA,
        _SET.format(option="cores"),
    ),
    Room(
        "memory (MiB)",
        _absolute("nova", "maxTotalRAMSize", "totalRAMUsed"),
        lambda needs, most: needs.nodes(most, lambda group, flavor: int(flavor["ram"])),
        _NOVA,
        _SET.format(option="ram"),
    ),
    Room(
        "volumes",
        _absolute("cinder", "maxTotalVolumes", "totalVolumesUsed"),
        lambda needs, most: needs.nodes(most, lambda group, flavor: len(group.volumes)),
        _CINDER,
        _SET.format(option="volumes"),
        _with_volumes,
    ),
    Room(
        "volumes' size (GiB)",
        _absolute("cinder", "maxTotalVolumeGigabytes", "totalGigabytesUsed"),
        lambda needs, most: needs.nodes(most, lambda group, flavor: sum(group.volumes)),
        _CINDER,
        _SET.format(option="gigabytes"),
        _with_volumes,
    ),
    Room(
        "ports",
        _neutron("port"),
        lambda needs, most: needs.nodes(most, lambda group, flavor: 1),
        _PORTS,
        _SET.format(option="ports"),
    ),
    Room(
        "floating IPs",
        _neutron("floatingip"),
        lambda needs, most: needs.floating_ips(most),
        _PORTS,
        _SET.format(option="floating-ips"),
        _maybe_floating,
    ),
    Room(
        "load balancers",
        _octavia,
        lambda needs, most: needs.load_balancers(most),
        "loadbalancer quota show $({ask} token issue -f value -c project_id)",
        "openstack loadbalancer quota set --loadbalancer {wanted} {project} (by the cloud's administrators)",
        _maybe_balanced,
    ),
    Room(
        "Magnum's clusters",
        _magnum,
        lambda needs, most: needs.clusters(most),
        "coe quotas show --project-id $({ask} token issue -f value -c project_id) --resource Cluster",
        "openstack coe quotas update --project-id {project} --resource Cluster --hard-limit {wanted} "
        "(by the cloud's administrators)",
    ),
)
"""All quotas that a cluster uses."""
