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
from gpuform.clouds.openstack.preflight.account import cli
from gpuform.clouds.openstack.preflight.demand import (
    Amounts,
    Group,
    Needs,
    floating_ips,
    groups,
    load_balancers,
)
from gpuform.clouds.openstack.preflight.project import Project
from gpuform.stack.preflight.check import Check, Judged
from infra.model.environment import Environment
from infra.plan.magnum import cluster_of

Read = Callable[[Project], tuple[int | None, int]]
"""The limit (None if unlimited), and how much of it is taken."""


@dataclass(frozen=True)
class Quota:
    """One quota; ``fix`` is a command for the cloud's administrators, who alone can raise it."""

    what: str
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


_PORTS = "quota show --network --usage"
_BY_ADMINISTRATORS = "(by the cloud's administrators)"
_SET = f"openstack quota set --{{option}} {{{{wanted}}}} {{{{project}}}} {_BY_ADMINISTRATORS}"


def _of_nodes(what: str, option: str, read: Read, of_one: Callable[[Group, Json], int], **more: Any) -> Quota:
    """A quota of which each node takes a part."""
    fields = {"by_hand": "limits show --absolute", "fix": _SET.format(option=option), **more}
    return Quota(what, read, lambda needs, most: needs.nodes(most, of_one), **fields)


def _one(group: Group, flavor: Json) -> int:
    return 1


def _of_flavor(key: str) -> Callable[[Group, Json], int]:
    return lambda group, flavor: int(flavor[key])


QUOTAS = (
    _of_nodes("instances", "instances", _absolute("nova", "maxTotalInstances", "totalInstancesUsed"), _one),
    _of_nodes("vCPUs", "cores", _absolute("nova", "maxTotalCores", "totalCoresUsed"), _of_flavor("vcpus")),
    _of_nodes("memory (MiB)", "ram", _absolute("nova", "maxTotalRAMSize", "totalRAMUsed"), _of_flavor("ram")),
    _of_nodes(
        "volumes",
        "volumes",
        _absolute("cinder", "maxTotalVolumes", "totalVolumesUsed"),
        lambda group, flavor: len(group.volumes),
        applies=_with_volumes,
    ),
    _of_nodes(
        "volumes' size (GiB)",
        "gigabytes",
        _absolute("cinder", "maxTotalVolumeGigabytes", "totalGigabytesUsed"),
        lambda group, flavor: sum(group.volumes),
        applies=_with_volumes,
    ),
    _of_nodes("ports", "ports", _neutron("port"), _one, by_hand=_PORTS),
    Quota(
        "floating IPs",
        _neutron("floatingip"),
        Needs.floating_ips,
        _PORTS,
        _SET.format(option="floating-ips"),
        lambda env: floating_ips(env, 1, 1, template_has=True) > 0,
    ),
    Quota(
        "load balancers",
        _octavia,
        Needs.load_balancers,
        "loadbalancer quota show $({ask} token issue -f value -c project_id)",
        f"openstack loadbalancer quota set --loadbalancer {{wanted}} {{project}} {_BY_ADMINISTRATORS}",
        lambda env: load_balancers(env, template_has=True) > 0,
    ),
    Quota(
        "Magnum's clusters",
        _magnum,
        Needs.clusters,
        "coe quotas show --project-id $({ask} token issue -f value -c project_id) --resource Cluster",
        "openstack coe quotas update --project-id {project} --resource Cluster --hard-limit {wanted} "
        f"{_BY_ADMINISTRATORS}",
    ),
)
"""All quotas that a cluster uses."""

_UNSEEN = (
    "not checked: nova has no quota of GPUs, and only its scheduler knows whether a host has a free one "
    "(a project sees neither PCI devices nor placement's inventory)"
)


def checks(env: Environment) -> Iterator[Check]:
    """One check for each quota that the environment uses, and a SKIP for GPUs."""
    ask = cli(cluster_of(env))
    for quota in QUOTAS:
        if quota.applies(env):
            yield Check(
                f"quota of {quota.what}",
                f"{ask} {quota.by_hand}".replace("{ask}", ask),
                partial(_judge, env, quota),
            )
    pools = [pool.name for pool in env.pools if pool.flavor and pool.flavor.gpus]
    if pools:
        fact = f"{_UNSEEN}: {', '.join(pools)}"
        yield Check("quota of GPUs", f"{ask} server list --long", lambda project: Judged("SKIP", fact))


def _judge(env: Environment, quota: Quota, project: Project) -> Judged:
    needs = Needs(env, project)
    if unknown := needs.unknown():
        return Judged("SKIP", f"not checked: {unknown}")
    try:
        limit, used = quota.read(project)
    except KeyError as missing:  # an older service, or one without the call, which answers 404
        return Judged("SKIP", f"not known: the service's answer has no {missing}")
    wanted = dict(quota.needs(needs, True))
    need, always = (sum(amount for _, amount in quota.needs(needs, most)) for most in (True, False))
    of_each = ", ".join(f"{name} {amount}" for name, amount in wanted.items() if amount)
    more = f"{need} more at most ({of_each})" if need else "no more than it has"
    if limit is None:
        return Judged("PASS", f"{more}; the project has no limit, {used} taken")
    fact = f"{more}; {used} of {limit} taken"
    if need + used <= limit or not need:
        return Judged("PASS", fact)
    if always + used > limit:
        fact += f"; the nodes that always run need {always} more"
    return Judged("FAIL", fact, quota.fix.format(wanted=need + used, project=project.id))
