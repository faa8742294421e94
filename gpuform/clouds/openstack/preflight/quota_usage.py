"""Quotas: what the environment needs beyond what it has already, against the project's limits.

nova has no quota of GPUs: only its scheduler knows which flavors still find a host, and the inventory that it
queries (placement) is for administrators.

The calls are those of each service's API reference: nova and cinder ``/limits``, neutron
``/quotas/PROJECT/details.json``, octavia ``/lbaas/quotas/PROJECT``, Magnum ``/quotas/PROJECT/Cluster``
(without a quota it answers its default, ``quotas.max_clusters_per_project``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuform.clients.openstack.api import Json
from gpuform.clouds.openstack.preflight.account import openstack_cli
from gpuform.clouds.openstack.preflight.demand import (
    Amounts,
    Group,
    Needs,
    PerNode,
    count_floating_ips,
    count_load_balancers,
    groups,
)
from gpuform.clouds.openstack.preflight.project import Project
from gpuform.stack.preflight.check import Check, Result
from infra.model.environment import Environment
from infra.plan.magnum import cluster_of

Read = Callable[[Project], tuple[int | None, int]]
"""The limit (None if unlimited), and how much of it is taken."""


@dataclass(frozen=True)
class Quota:
    """One quota; ``fix`` is a command for the cloud's administrators, who alone can raise it."""

    label: str
    read: Read
    needs: Callable[[Needs, bool], Amounts]
    by_hand: str
    fix: str
    applies: Callable[[Environment], bool] = lambda env: True


def _limit(value: int | None) -> int | None:
    """-1 means no limit in every service; octavia may also answer null."""
    return None if value is None or value < 0 else value


def _absolute(service: str, limit: str, used: str) -> Read:
    def read(project: Project) -> tuple[int | None, int]:
        limits = project.get(service, "/limits")["limits"]["absolute"]
        return _limit(limits[limit]), limits[used]

    return read


def _neutron(resource: str) -> Read:
    def read(project: Project) -> tuple[int | None, int]:
        quota = project.get("neutron", f"/quotas/{project.id}/details.json")["quota"][resource]
        return _limit(quota["limit"]), quota["used"] + quota.get("reserved", 0)

    return read


def _octavia(project: Project) -> tuple[int | None, int]:
    quota = project.get("octavia", f"/lbaas/quotas/{project.id}")["quota"]
    limit = quota.get("load_balancer", quota.get("loadbalancer"))
    balancers = project.list_all("octavia", "/lbaas/loadbalancers", "loadbalancers", project_id=project.id)
    return _limit(limit), len(balancers)


def _magnum(project: Project) -> tuple[int | None, int]:
    limit = project.get("magnum", f"/quotas/{project.id}/Cluster").get("hard_limit")
    return _limit(limit), len(project.list_all("magnum", "/clusters", "clusters"))


def _uses_volumes(env: Environment) -> bool:
    return any(group.volumes for group in groups(env))


_PORTS = "quota show --network --usage"
_BY_ADMINISTRATORS = "(by the cloud's administrators)"
_SET_QUOTA = f"openstack quota set --{{option}} {{{{wanted}}}} {{{{project}}}} {_BY_ADMINISTRATORS}"


def _per_node(label: str, option: str, read: Read, amount: PerNode, **more: Any) -> Quota:
    """A quota of which each node takes a part."""
    fields = {"by_hand": "limits show --absolute", "fix": _SET_QUOTA.format(option=option), **more}
    return Quota(label, read, lambda needs, most: needs.nodes(most, amount), **fields)


def _one(group: Group, flavor: Json) -> int:
    return 1


def _flavor(key: str) -> PerNode:
    return lambda group, flavor: int(flavor[key])


QUOTAS = (
    _per_node("instances", "instances", _absolute("nova", "maxTotalInstances", "totalInstancesUsed"), _one),
    _per_node("vCPUs", "cores", _absolute("nova", "maxTotalCores", "totalCoresUsed"), _flavor("vcpus")),
    _per_node("memory (MiB)", "ram", _absolute("nova", "maxTotalRAMSize", "totalRAMUsed"), _flavor("ram")),
    _per_node(
        "volumes",
        "volumes",
        _absolute("cinder", "maxTotalVolumes", "totalVolumesUsed"),
        lambda group, flavor: len(group.volumes),
        applies=_uses_volumes,
    ),
    _per_node(
        "volumes' size (GiB)",
        "gigabytes",
        _absolute("cinder", "maxTotalVolumeGigabytes", "totalGigabytesUsed"),
        lambda group, flavor: sum(group.volumes),
        applies=_uses_volumes,
    ),
    _per_node("ports", "ports", _neutron("port"), _one, by_hand=_PORTS),
    Quota(
        "floating IPs",
        _neutron("floatingip"),
        Needs.floating_ips,
        _PORTS,
        _SET_QUOTA.format(option="floating-ips"),
        lambda env: count_floating_ips(env, 1, 1, template_has=True) > 0,
    ),
    Quota(
        "load balancers",
        _octavia,
        Needs.load_balancers,
        "loadbalancer quota show $({cli} token issue -f value -c project_id)",
        f"openstack loadbalancer quota set --loadbalancer {{wanted}} {{project}} {_BY_ADMINISTRATORS}",
        lambda env: count_load_balancers(env, template_has=True) > 0,
    ),
    Quota(
        "Magnum's clusters",
        _magnum,
        Needs.clusters,
        "coe quotas show --project-id $({cli} token issue -f value -c project_id) --resource Cluster",
        "openstack coe quotas update --project-id {project} --resource Cluster --hard-limit {wanted} "
        f"{_BY_ADMINISTRATORS}",
    ),
)
"""All quotas that a cluster uses."""

_NO_GPU_QUOTA = (
    "not checked: nova has no quota of GPUs, and only its scheduler knows whether a host has a free one "
    "(a project sees neither PCI devices nor placement's inventory)"
)


def checks(env: Environment) -> Iterator[Check]:
    """One check for each quota that the environment uses, and a SKIP for GPUs."""
    cli = openstack_cli(cluster_of(env))
    for quota in QUOTAS:
        if quota.applies(env):
            yield Check(
                f"quota of {quota.label}",
                f"{cli} {quota.by_hand}".replace("{cli}", cli),
                partial(_judge_quota, env, quota),
            )
    pools = [pool.name for pool in env.pools if pool.flavor and pool.flavor.gpus]
    if pools:
        fact = f"{_NO_GPU_QUOTA}: {', '.join(pools)}"
        yield Check("quota of GPUs", f"{cli} server list --long", lambda project: Result("SKIP", fact))


def _judge_quota(env: Environment, quota: Quota, project: Project) -> Result:
    needs = Needs(env, project)
    if unknown := needs.unknown():
        return Result("SKIP", f"not checked: {unknown}")
    try:
        limit, used = quota.read(project)
    except KeyError as key:  # an older service, or one without the call, which answers 404
        return Result("SKIP", f"not known: the service's answer has no {key}")
    amounts = dict(quota.needs(needs, True))
    most, least = (sum(amount for _, amount in quota.needs(needs, maximum)) for maximum in (True, False))
    by_group = ", ".join(f"{name} {amount}" for name, amount in amounts.items() if amount)
    need_text = f"{most} more at most ({by_group})" if most else "no more than it has"
    if limit is None:
        return Result("PASS", f"{need_text}; the project has no limit, {used} taken")
    fact = f"{need_text}; {used} of {limit} taken"
    if most + used <= limit or not most:
        return Result("PASS", fact)
    if least + used > limit:
        fact += f"; the nodes that always run need {least} more"
    return Result("FAIL", fact, quota.fix.format(wanted=most + used, project=project.id))
