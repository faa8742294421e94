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
from infra.model import capi_checks
from infra.model.environment import Environment
from infra.model.machines import Machine
from infra.model.openstack import OpenstackCluster
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
    labels = _labels(cluster)
    found = []
    for name, one, keys in ((MASTERS, cluster.masters, (_BOOT, _ETCD)), (WORKERS, cluster.workers, (_BOOT,))):
        volumes, machine = _volumes(cluster, labels, *keys), cluster.machine(one.flavor)
        found.append(Group(name, one.flavor, one.nodes, one.nodes, volumes, machine=machine))
    for pool in env.pools:
        own = pool.on_openstack
        volumes = _volumes(cluster, {**labels, **own.labels}, _BOOT, docker=own.docker_volume_gib)
        found.append(Group(pool.name, pool.machine, pool.least, pool.most, volumes, own.image, pool.flavor))
    return tuple(found)


def _volumes(
    cluster: OpenstackCluster, labels: Mapping[str, str], *keys: str, docker: int | None = None
) -> tuple[int, ...]:
    template = cluster.own_template
    sizes = [docker or cluster.docker_volume_gib or (template.docker_volume_gib if template else 0) or 0]
    sizes += [int(text) if (text := labels.get(key, "")).isdigit() else 0 for key in keys]
    return tuple(size for size in sizes if size)


def _labels(cluster: OpenstackCluster) -> dict[str, str]:
    return {**(cluster.own_template.labels if cluster.own_template else {}), **cluster.labels}


def load_balancers(env: Environment, template_has: bool = False) -> int:
    """Load balancers of the masters; ``template_has``: whether an existing template enables them."""
    cluster = cluster_of(env)
    own = cluster.own_template
    said = (own.master_lb if own else template_has) or cluster.driver == "capi"
    wanted = said if cluster.masters.lb is None else cluster.masters.lb
    return _LOAD_BALANCERS[cluster.driver] if wanted else 0


def floating_ips(env: Environment, nodes: int, balancers: int, template_has: bool = False) -> int:
    """Floating IPs of ``nodes`` nodes, and of the API's load balancer."""
    cluster = cluster_of(env)
    if cluster.driver == "capi":  # by the label for the API's load balancer, and on no node
        return balancers if capi_checks.on({_API_ADDRESS: "true", **_labels(cluster)}, _API_ADDRESS) else 0
    own = cluster.own_template
    said = own.floating_ip if own else template_has
    wanted = said if cluster.network.floating_ip is None else cluster.network.floating_ip
    return nodes + bool(balancers) if wanted else 0


def named_flavors(env: Environment) -> dict[str, list[Group]]:
    found: dict[str, list[Group]] = {}
    for group in groups(env):
        if group.flavor:
            found.setdefault(group.flavor, []).append(group)
    return found


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

    def nodes(self, most: bool, of_one: Callable[[Group, Json], int]) -> Amounts:
        """For every group, what its additional nodes take."""
        for group in groups(self.env):
            wanted = (group.most if most else group.least) * of_one(group, self._flavor(group))
            yield group.name, max(0, wanted - self._has(group, of_one))

    def floating_ips(self, most: bool) -> Amounts:
        template = self._template.get("floating_ip_enabled", True)
        each = [(one.name, one.most if most else one.least, self._count(one)) for one in groups(self.env)]
        for name, wanted, has in each:
            yield name, max(0, floating_ips(self.env, wanted - has, 0, template))
        if self.project.own is None:
            yield "API", floating_ips(self.env, 0, self._balancers, template)

    def load_balancers(self, most: bool) -> Amounts:
        """Load balancers of the masters; those of Services are not counted."""
        if self.project.own is None:
            yield "masters", self._balancers

    def clusters(self, most: bool) -> Amounts:
        if self.project.own is None:
            yield "the cluster", 1

    @property
    def _balancers(self) -> int:
        return load_balancers(self.env, bool(self._template.get("master_lb_enabled")))

    @property
    def _template(self) -> Json:
        named = cluster_of(self.env).template
        return (self.project.template(named) if isinstance(named, str) else None) or {}

    def _flavor_name(self, group: Group) -> str:
        given = "master_flavor_id" if group.name == MASTERS else "flavor_id"
        return group.flavor or str(self._template.get(given) or "")

    def _flavor(self, group: Group) -> Json:
        return self.project.flavor(self._flavor_name(group)) or {}

    def _count(self, group: Group) -> int:
        return sum(int(one.get("node_count") or 0) for one in self._there(group))

    def _has(self, group: Group, of_one: Callable[[Group, Json], int]) -> int:
        """What the group's nodes take now, by their current flavors."""
        flavors = ((one, self.project.flavor(str(one.get("flavor_id")))) for one in self._there(group))
        return sum(
            int(one.get("node_count") or 0) * of_one(group, flavor) for one, flavor in flavors if flavor
        )

    def _there(self, group: Group) -> list[Json]:
        own = self.project.own
        return [one for one in own.node_groups if one["name"] == group.name] if own else []
