"""Simulated nodes of a stack, by its kind of cluster; on the embedded control plane they take pods.

Offline runs have all nodes of a cloud's stack (`play`). A rehearsal begins with those that it does not buy:
node groups, own hosts, nodes matched by a selector. Own hosts have their declared GPUs and driver. Their
cores and memory are not declared, so they are simulated large enough that only GPUs limit placement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.engine.places import Tools
from gpuform.usage.nodes import CPU, MEMORY_GIB
from infra import versions
from infra.model import labels
from infra.model.environment import Environment
from infra.model.host_checks import driver_of
from infra.model.hosts import CDI, NVIDIA_RUNTIME, HostsCluster, spelled
from infra.model.machines import Machine
from infra.model.pool import Pool
from infra.plan import magnum, played
from infra.plan.nodes import bare
from lab.rehearse.cloud.market import reserved
from lab.rehearse.cluster import NODES, Cluster
from lab.rehearse.stack_file import SELECTED

Manifest = dict[str, Any]
OWN_HOST = "own host"
OLDEST = "1.6"
"""containerd of Debian 12, the oldest system of the Ansible roles."""
_STAND_IN = "{} resources: a stand-in checks every input and creates nothing"
_CORES, _GIB = played.UNDECLARED
_STRICT = (labels.SIM_CONTAINER_RUNTIME, labels.SIM_GPU_RESET)
"""Annotations that nodes of earlier versions did not have; without them nodes accept every setting."""


@dataclass(frozen=True)
class Played:
    """The manifests, and the assumptions in them, in words."""

    manifests: tuple[Manifest, ...]
    made_up: tuple[str, ...] = ()


class Nodes:
    """The nodes of one kind of cluster; these are of the embedded one: its program creates them."""

    by_cloud = False
    """Whether a cloud creates them, so that an offline run needs simulated ones."""

    def offline(self, env: Environment, waiting: bool) -> tuple[Manifest, ...]:
        """All nodes; ``waiting`` ones have not passed the readiness gate yet."""
        fact = f"{env.cluster.kind} has no nodes to simulate"
        kinds = " or ".join(kind for kind, one in _KINDS.items() if one.by_cloud)
        raise InputError("cluster.kind", fact, f"name a stack with cluster.kind: {kinds}")

    def labels(self, env: Environment) -> tuple[str, str]:
        """The selector of these nodes, and the label with the name of their pool or group."""
        return f"{labels.ENVIRONMENT}={env.name}", labels.POOL

    def rehearsed(self, env: Environment) -> Played:
        return Played(())

    def assumed(self, env: Environment, pool: Pool) -> tuple[str, ...]:
        """Resources of the pool's nodes of which the amount is not declared."""
        return ()


class _Eks(Nodes):
    by_cloud = True

    def offline(self, env: Environment, waiting: bool) -> tuple[Manifest, ...]:
        return played.aws_nodes(env, waiting)

    def rehearsed(self, env: Environment) -> Played:
        """The nodes of node groups, and EKS's DaemonSets."""
        made = [*played.aws_nodes(env, waiting=True, fixed_only=True), *played.daemon_sets(env)]
        return Played(tuple(made), (_STAND_IN.format("AWS"), *_held(env)))


class _Magnum(Nodes):
    by_cloud = True

    def offline(self, env: Environment, waiting: bool) -> tuple[Manifest, ...]:
        return played.magnum_nodes(env, proven=not waiting)

    def labels(self, env: Environment) -> tuple[str, str]:
        group = magnum.GROUP_LABELS[magnum.cluster_of(env).driver]
        return group, group

    def rehearsed(self, env: Environment) -> Played:
        unknown = played.unknown_workers(env)
        sizes = (f"{unknown}; simulated: {_CORES} cores and {_GIB} GiB",) if unknown else ()
        return Played(played.magnum_nodes(env), (_STAND_IN.format("Magnum"), *sizes))

    def assumed(self, env: Environment, pool: Pool) -> tuple[str, ...]:
        workers = pool.name == magnum.DEFAULT_WORKERS
        return (CPU, MEMORY_GIB) if workers and played.unknown_workers(env) else ()


class _Hosts(Nodes):
    def rehearsed(self, env: Environment) -> Played:
        made = [one for pool in env.pools for one in _hosts(env, pool)]
        size = f"cores and memory of own hosts are not declared; simulated: {_CORES} cores, {_GIB} GiB each"
        return Played(tuple(made), (size,))

    def assumed(self, env: Environment, pool: Pool) -> tuple[str, ...]:
        return CPU, MEMORY_GIB


class _Existing(Nodes):
    def rehearsed(self, env: Environment) -> Played:
        """InputError for a pool that no known machine matches."""
        made = [_found(env, index, pool) for index, pool in enumerate(env.pools)]
        names = ", ".join(
            f"{pool.name} as {pool.node_machine.name}" for pool in env.pools if pool.node_machine
        )
        return Played(tuple(made), (f"the number of nodes is not declared; simulated: one each, {names}",))


_KINDS: Mapping[str, Nodes] = {
    "aws": _Eks(),
    "openstack": _Magnum(),
    "hosts": _Hosts(),
    "existing": _Existing(),
    "embedded": Nodes(),
}


def of(env: Environment) -> Nodes:
    return _KINDS[env.cluster.kind]


def play(
    env: Environment, paths: Paths, tools: Tools, waiting: bool = False, lenient: bool = False
) -> Mapping[str, int]:
    """Make the cluster's nodes match the environment; returns the number of nodes by pool.

    On ``lenient`` ones MIG mode changes without a reboot, and containerd gives GPUs with any settings: an
    earlier version's suffice. Idempotent: changes nodes that differ, and deletes surplus nodes without
    draining them. Raises InputError for a cluster of another kind, Failure if the control plane does not
    answer.
    """
    nodes = of(env)
    wanted, (mine, group) = nodes.offline(env, waiting), nodes.labels(env)
    for one in wanted if lenient else ():
        for annotation in _STRICT:
            one["metadata"]["annotations"].pop(annotation, None)
    names = {one["metadata"]["name"] for one in wanted}
    if not paths.kubeconfig.is_file():
        raise Failure(_Embedded.subject, "it was never started", _Embedded.remedy)
    selected, _, value = mine.partition("=")
    with closing(_Embedded(paths.kubeconfig, tools.path("kubectl"))) as cluster:
        cluster.apply(wanted, server_side=False)
        for one in cluster.items(NODES):
            meta = one["metadata"]
            label = meta.get("labels", {}).get(selected)
            if label is not None and value in ("", label) and meta["name"] not in names:
                cluster.delete(f"{NODES}/{meta['name']}")
    found: dict[str, int] = {}
    for one in wanted:
        pool = one["metadata"]["labels"][group]
        found[pool] = found.get(pool, 0) + 1
    return found


class _Embedded(Cluster):
    subject, remedy = "embedded control plane", "start it with `gpuform local start`"


def runtime_classes(env: Environment) -> Iterator[Manifest]:
    """RuntimeClasses that pods name and the operator does not create; the cluster has them already."""
    created = None if env.gpu_operator.mode == "device_plugin" else NVIDIA_RUNTIME
    named = {env.runtime_class, *(workload.runtime_class for workload in env.workloads)}
    for name in sorted(filter(None, named - {created})):
        metadata = {"name": name}
        yield {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata, "handler": name}


def _held(env: Environment) -> Iterator[str]:
    found = [one for pool in env.pools for one in reserved(env, pool)]
    if found:
        each = ", ".join(f"{one.total} {one.machine} in {one.zone} in {one.id}" for one in found)
        yield f"the size of a reservation is not declared; simulated: {each}"


def _hosts(env: Environment, pool: Pool) -> Iterator[Manifest]:
    assert isinstance(env.cluster, HostsCluster)
    gpu = pool.gpus[0].name if pool.gpus else None
    machine = Machine(OWN_HOST, "openstack", _CORES, _GIB, gpu, pool.gpu_count)
    for host in pool.hosts or ():
        made = bare(env, pool, machine, host.name, {SELECTED: pool.name})
        del made["metadata"]["labels"][labels.INSTANCE_TYPE]  # own hosts have none
        if pool.gpus:
            made["metadata"]["annotations"] |= {
                labels.SIM_HOST_DRIVER: driver_of(env.cluster, pool).version,
                **_container_runtime(env.cluster),
            }
        yield made


def _container_runtime(cluster: HostsCluster) -> dict[str, str]:
    """As Ansible leaves it; if no version is declared, the oldest that the mode works with."""
    name = {"containerd": "containerd", "crio": "cri-o"}[cluster.runtime]
    oldest = spelled(CDI[cluster.runtime].known) if cluster.by_cdi else OLDEST
    found = {
        labels.SIM_CONTAINER_RUNTIME: f"{name}://{cluster.runtime_version or oldest}",
        labels.SIM_DEFAULT_RUNTIME: "runc",
    }
    return found | ({labels.SIM_CDI: "on"} if cluster.by_cdi else {})


def _found(env: Environment, index: int, pool: Pool) -> Manifest:
    machine = pool.node_machine
    if machine is None:
        choice = pool.gpu
        what = f"{choice.count} of {' or '.join(choice.models)}" if choice else "no machine"
        raise InputError(
            f"pools[{index}].gpu",
            f"no known machine has {what}, so its nodes cannot be simulated",
            "name a machine, or another count",
        )
    made = bare(env, pool, machine, f"{pool.name}-0", dict(pool.selector or {}))
    if machine.model and env.ownership.driver != "operator":
        made["metadata"]["annotations"][labels.SIM_HOST_DRIVER] = versions.GPU_DRIVER
    return made
