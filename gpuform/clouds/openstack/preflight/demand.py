"""The most that an environment needs of a project, by node group, and the resources of each node.

Source of what Magnum creates for a node: its Heat driver (magnum/drivers/k8s_fedora_coreos_v1/templates and
drivers/heat/template_def.py, in Magnum until its commit 31b84327 removed them): a server, a port, a floating
IP if the cluster has them, a volume for each of ``docker_volume_size`` and the labels ``boot_volume_size``
and, on masters, ``etcd_volume_size``; two load balancers before masters that have one, for the API and for
etcd. The Cluster API driver has one load balancer, and floating IPs on nothing else (magnum-capi-helm).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gpuform.clients.openstack.api import Json
from gpuform.clouds.openstack.preflight.project import Project
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
        result.append(
            Group(pool.name, pool.machine, pool.min_nodes, pool.max_nodes, volumes, image, pool.flavor)
        )
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
