"""What a stack takes of the project's quotas, by what it declares and what runs.

Source of what Magnum creates for a node: its Heat driver (magnum/drivers/k8s_fedora_coreos_v1/templates and
drivers/heat/template_def.py, in Magnum until its commit 31b84327 removed them): a server, a port, a floating
IP if the cluster has them, a volume for each of ``docker_volume_size`` and the labels ``boot_volume_size``
and, on masters, ``etcd_volume_size``; two load balancers before masters that have one, for the API and for
etcd. The Cluster API driver has one load balancer, and floating IPs on nothing else (magnum-capi-helm).

nova has no quota of GPUs: only its scheduler knows which flavors still find a host, and the inventory that it
queries (placement) is for administrators.

The calls are those of each service's API reference: nova and cinder ``/limits``, neutron
``/quotas/PROJECT/details.json``, octavia ``/lbaas/quotas/PROJECT``, Magnum ``/quotas/PROJECT/Cluster``
(without a quota it answers its default, ``quotas.max_clusters_per_project``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuform.clients.openstack.api import Json
from gpuform.clouds.openstack.preflight.account import openstack_cli
from gpuform.clouds.openstack.preflight.project import Project
from gpuform.stack.preflight.check import Check, Result
from infra.model.environment import Environment
from infra.model.gpu.machines import Machine
from infra.model.openstack.cluster import OpenstackCluster, is_enabled
from infra.plan.magnum import cluster_of

MASTERS, WORKERS = "default-master", "default-worker"
_BOOT, _ETCD = "boot_volume_size", "etcd_volume_size"
_API_ADDRESS = "master_lb_floating_ip_enabled"
_LOAD_BALANCERS = {"heat": 2, "capi": 1}


@dataclass(frozen=True)
class Group:
    """One node group: between ``least`` and ``most`` nodes. ``flavor`` None: the template's.

    ``volumes`` are the sizes in GiB of each of a node's volumes; ``machine`` is what is known of the flavor.
    """

    name: str
    flavor: str | None
    least: int
    most: int
    volumes: tuple[int, ...] = ()
    image: str | None = None
    machine: Machine | None = None


def groups(env: Environment) -> tuple[Group, ...]:
    cluster = cluster_of(env)
    labels = cluster.labels
    result = []
    default_groups = ((MASTERS, cluster.masters, (_BOOT, _ETCD)), (WORKERS, cluster.workers, (_BOOT,)))
    for name, spec, keys in default_groups:
        volumes, machine = _volume_sizes(cluster, labels, *keys), cluster.machine(spec.flavor)
        result.append(Group(name, spec.flavor, spec.nodes, spec.nodes, volumes, machine=machine))
    for pool in env.pools:
        settings = pool.openstack_settings
        pool_labels, size = {**labels, **settings.labels}, settings.docker_volume_gib
        volumes, image = _volume_sizes(cluster, pool_labels, _BOOT, docker=size), settings.image
        least, most = pool.min_nodes, pool.max_nodes
        result.append(Group(pool.name, pool.machine, least, most, volumes, image, pool.flavor))
    return tuple(result)


def _volume_sizes(
    cluster: OpenstackCluster, labels: Mapping[str, str], *keys: str, docker: int | None = None
) -> tuple[int, ...]:
    sizes = [docker or cluster.docker_volume_gib or 0]
    sizes += [int(size) if (size := labels.get(key, "")).isdigit() else 0 for key in keys]
    return tuple(size for size in sizes if size)


def count_load_balancers(env: Environment, template_has: bool = False) -> int:
    """Load balancers of the masters; ``template_has``: whether the template enables them."""
    cluster = cluster_of(env)
    default = template_has or cluster.driver == "capi"
    has_balancer = default if cluster.masters.lb is None else cluster.masters.lb
    return _LOAD_BALANCERS[cluster.driver] if has_balancer else 0


def count_floating_ips(env: Environment, nodes: int, balancers: int, template_has: bool = False) -> int:
    """Floating IPs of ``nodes`` nodes, and of the API's load balancer."""
    cluster = cluster_of(env)
    if cluster.driver == "capi":  # by the label for the API's load balancer, and on no node
        labels = {_API_ADDRESS: "true", **cluster.labels}
        return balancers if is_enabled(labels, _API_ADDRESS) else 0
    has_ips = template_has if cluster.network.floating_ip is None else cluster.network.floating_ip
    return nodes + bool(balancers) if has_ips else 0


def groups_by_flavor(env: Environment) -> dict[str, list[Group]]:
    result: dict[str, list[Group]] = {}
    for group in groups(env):
        if group.flavor:
            result.setdefault(group.flavor, []).append(group)
    return result


PerNode = Callable[[Group, Json], int]
"""Amount that one node of a group with a flavor takes."""
Amounts = Iterator[tuple[str, int]]
"""Amount needed by each node group or part of the cluster."""


@dataclass(frozen=True)
class Needs:
    """What an environment lacks; ``most``: elastic pools count at their maximum, else at their minimum.

    A group that has more or larger nodes than declared frees nothing in this count: Magnum may add to one
    group before it removes from another.
    """

    env: Environment
    project: Project

    def unknown(self) -> str:
        """Why nothing can be counted; empty if it can."""
        for group in groups(self.env):
            name = self._flavor_name(group)
            if not name:
                return f"neither the environment nor the template names a flavor for {group.name}"
            if self.project.flavor(name) is None:
                return f"see flavor {name}"
        return ""

    def nodes(self, most: bool, per_node: PerNode) -> Amounts:
        """For every group, what its additional nodes take."""
        for group in groups(self.env):
            amount = (group.most if most else group.least) * per_node(group, self._flavor(group))
            yield group.name, max(0, amount - self._current_amount(group, per_node))

    def floating_ips(self, most: bool) -> Amounts:
        template = self._template.get("floating_ip_enabled", True)
        for group in groups(self.env):
            more = (group.most if most else group.least) - self._node_count(group)
            yield group.name, max(0, count_floating_ips(self.env, more, 0, template))
        if self.project.existing is None:
            yield "API", count_floating_ips(self.env, 0, self._balancers, template)

    def load_balancers(self, most: bool) -> Amounts:
        """Load balancers of the masters; those of Services are not counted."""
        if self.project.existing is None:
            yield "masters", self._balancers

    def clusters(self, most: bool) -> Amounts:
        if self.project.existing is None:
            yield "the cluster", 1

    @property
    def _balancers(self) -> int:
        return count_load_balancers(self.env, bool(self._template.get("master_lb_enabled")))

    @property
    def _template(self) -> Json:
        return self.project.template(cluster_of(self.env).template) or {}

    def _flavor_name(self, group: Group) -> str:
        field = "master_flavor_id" if group.name == MASTERS else "flavor_id"
        return group.flavor or str(self._template.get(field) or "")

    def _flavor(self, group: Group) -> Json:
        return self.project.flavor(self._flavor_name(group)) or {}

    def _node_count(self, group: Group) -> int:
        return sum(int(node_group.get("node_count") or 0) for node_group in self._existing_groups(group))

    def _current_amount(self, group: Group, per_node: PerNode) -> int:
        """What the group's nodes take now, by their current flavors."""
        amount = 0
        for existing in self._existing_groups(group):
            if flavor := self.project.flavor(str(existing.get("flavor_id"))):
                amount += int(existing.get("node_count") or 0) * per_node(group, flavor)
        return amount

    def _existing_groups(self, group: Group) -> list[Json]:
        existing = self.project.existing
        return [one for one in existing.node_groups if one["name"] == group.name] if existing else []


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
        "volumes", "volumes", _absolute("cinder", "maxTotalVolumes", "totalVolumesUsed"),
        lambda group, flavor: len(group.volumes), applies=_uses_volumes,
    ),
    _per_node(
        "volumes' size (GiB)", "gigabytes",
        _absolute("cinder", "maxTotalVolumeGigabytes", "totalGigabytesUsed"),
        lambda group, flavor: sum(group.volumes), applies=_uses_volumes,
    ),
    _per_node("ports", "ports", _neutron("port"), _one, by_hand=_PORTS),
    Quota(
        "floating IPs", _neutron("floatingip"), Needs.floating_ips, _PORTS,
        _SET_QUOTA.format(option="floating-ips"),
        lambda env: count_floating_ips(env, 1, 1, template_has=True) > 0,
    ),
    Quota(
        "load balancers", _octavia, Needs.load_balancers,
        "loadbalancer quota show $({cli} token issue -f value -c project_id)",
        f"openstack loadbalancer quota set --loadbalancer {{wanted}} {{project}} {_BY_ADMINISTRATORS}",
        lambda env: count_load_balancers(env, template_has=True) > 0,
    ),
    Quota(
        "Magnum's clusters", _magnum, Needs.clusters,
        "coe quotas show --project-id $({cli} token issue -f value -c project_id) --resource Cluster",
        "openstack coe quotas update --project-id {project} --resource Cluster --hard-limit {wanted} "
        f"{_BY_ADMINISTRATORS}",
    ),
)  # fmt: skip
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
