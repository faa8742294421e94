"""Simulated nodes of a stack, by its kind of cluster; on the embedded control plane they take pods.

Offline runs have all nodes of a cloud's stack (`apply_nodes`). A rehearsal begins with those that it does not
buy: node groups, own hosts, nodes matched by a selector. Own hosts have their declared GPUs and driver. Their
cores and memory are not declared, so they are simulated large enough that only GPUs limit placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.engine.files import Tools
from gpuform.usage.nodes import CPU, MEMORY_GIB
from infra import versions
from infra.model.base.labels import (
    ENVIRONMENT,
    INSTANCE_TYPE,
    POOL,
    SIM_CDI,
    SIM_CONTAINER_RUNTIME,
    SIM_DEFAULT_RUNTIME,
    SIM_GPU_RESET,
    SIM_HOST_DRIVER,
)
from infra.model.environment import Environment
from infra.model.gpu.machines import Machine
from infra.model.hosts.cluster import CDI, NVIDIA_RUNTIME, HostsCluster, format_version
from infra.model.platform.installed import driver_of
from infra.model.pool.pool import Pool
from infra.plan import magnum
from infra.plan.nodes import UNDECLARED_SIZE, aws_nodes, bare_node, daemon_sets, magnum_nodes, unknown_workers
from lab.rehearse.cloud.market import reservations_of
from lab.rehearse.cluster import NODES, Cluster
from lab.rehearse.stack_file import SELECTED

Manifest = dict[str, Any]
OWN_HOST = "own host"
OLDEST = "1.6"
"""containerd of Debian 12, the oldest system of the Ansible roles."""
_STAND_IN = "{} resources: a stand-in checks every input and creates nothing"
_CORES, _GIB = UNDECLARED_SIZE
_STRICT = (SIM_CONTAINER_RUNTIME, SIM_GPU_RESET)
"""Annotations that nodes of earlier versions did not have; without them nodes accept every setting."""


@dataclass(frozen=True)
class RehearsedNodes:
    """The manifests, and the assumptions in them, in words."""

    manifests: tuple[Manifest, ...]
    assumptions: tuple[str, ...] = ()


class SimulatedNodes:
    """The nodes of one kind of cluster; these are of the embedded one: its program creates them."""

    by_cloud = False
    """Whether a cloud creates them, so that an offline run needs simulated ones."""
    by_selector = False
    """Whether they are there before the stack, and their pools select them."""

    def offline_manifests(self, env: Environment, waiting: bool) -> tuple[Manifest, ...]:
        """All nodes; ``waiting`` ones have not passed the readiness gate yet."""
        fact = f"{env.cluster.kind} has no nodes to simulate"
        kinds = " or ".join(kind for kind, node_kind in _KINDS.items() if node_kind.by_cloud)
        raise InputError("cluster.kind", fact, f"name a stack with cluster.kind: {kinds}")

    def labels(self, env: Environment) -> tuple[str, str]:
        """The selector of these nodes, and the label with the name of their pool or group."""
        return f"{ENVIRONMENT}={env.name}", POOL

    def rehearsed(self, env: Environment) -> RehearsedNodes:
        return RehearsedNodes(())

    def undeclared(self, env: Environment, pool: Pool) -> tuple[str, ...]:
        return ()


class _Eks(SimulatedNodes):
    by_cloud = True

    def offline_manifests(self, env: Environment, waiting: bool) -> tuple[Manifest, ...]:
        return aws_nodes(env, waiting)

    def rehearsed(self, env: Environment) -> RehearsedNodes:
        """The nodes of node groups, and EKS's DaemonSets."""
        manifests = (*aws_nodes(env, waiting=True, fixed_only=True), *daemon_sets(env))
        return RehearsedNodes(manifests, (_STAND_IN.format("AWS"), *_reservation_note(env)))


class _Magnum(SimulatedNodes):
    by_cloud = True

    def offline_manifests(self, env: Environment, waiting: bool) -> tuple[Manifest, ...]:
        return magnum_nodes(env, proven=not waiting)

    def labels(self, env: Environment) -> tuple[str, str]:
        group = magnum.GROUP_LABELS[magnum.cluster_of(env).driver]
        return group, group

    def rehearsed(self, env: Environment) -> RehearsedNodes:
        unknown = unknown_workers(env)
        sizes = (f"{unknown}; simulated: {_CORES} cores and {_GIB} GiB",) if unknown else ()
        return RehearsedNodes(magnum_nodes(env), (_STAND_IN.format("Magnum"), *sizes))

    def undeclared(self, env: Environment, pool: Pool) -> tuple[str, ...]:
        workers = pool.name == magnum.DEFAULT_WORKERS
        return (CPU, MEMORY_GIB) if workers and unknown_workers(env) else ()


class _Hosts(SimulatedNodes):
    def rehearsed(self, env: Environment) -> RehearsedNodes:
        manifests = tuple(manifest for pool in env.pools for manifest in _host_nodes(env, pool))
        size = f"cores and memory of own hosts are not declared; simulated: {_CORES} cores, {_GIB} GiB each"
        return RehearsedNodes(manifests, (size,))

    def undeclared(self, env: Environment, pool: Pool) -> tuple[str, ...]:
        return CPU, MEMORY_GIB


class _Existing(SimulatedNodes):
    by_selector = True

    def rehearsed(self, env: Environment) -> RehearsedNodes:
        """InputError for a pool that no known machine matches."""
        manifests = tuple(_existing_node(env, index, pool) for index, pool in enumerate(env.pools))
        names = [f"{pool.name} as {pool.node_machine.name}" for pool in env.pools if pool.node_machine]
        number = f"the number of nodes is not declared; simulated: one each, {', '.join(names)}"
        return RehearsedNodes(manifests, (number,))


_KINDS: Mapping[str, SimulatedNodes] = {
    "aws": _Eks(),
    "openstack": _Magnum(),
    "hosts": _Hosts(),
    "existing": _Existing(),
    "embedded": SimulatedNodes(),
}


def simulated_nodes(env: Environment) -> SimulatedNodes:
    return _KINDS[env.cluster.kind]


def apply_nodes(
    env: Environment, paths: Paths, tools: Tools, waiting: bool = False, lenient: bool = False
) -> Mapping[str, int]:
    """Make the cluster's nodes match the environment; returns the number of nodes by pool.

    On ``lenient`` ones MIG mode changes without a reboot, and containerd gives GPUs with any settings: an
    earlier version's suffice. Idempotent: changes nodes that differ, and deletes surplus nodes without
    draining them. Raises InputError for a cluster of another kind, Failure if the control plane does not
    answer.
    """
    nodes = simulated_nodes(env)
    manifests, (selector, group) = nodes.offline_manifests(env, waiting), nodes.labels(env)
    for manifest in manifests if lenient else ():
        for annotation in _STRICT:
            manifest["metadata"]["annotations"].pop(annotation, None)
    names = {manifest["metadata"]["name"] for manifest in manifests}
    if not paths.kubeconfig.is_file():
        raise Failure(_EmbeddedCluster.subject, "it was never started", _EmbeddedCluster.remedy)
    label_name, _, value = selector.partition("=")
    with closing(_EmbeddedCluster(paths.kubeconfig, tools.path("kubectl"))) as cluster:
        cluster.apply(manifests, server_side=False)
        for item in cluster.items(NODES):
            meta = item["metadata"]
            label = meta.get("labels", {}).get(label_name)
            if label is not None and value in ("", label) and meta["name"] not in names:
                cluster.delete(f"{NODES}/{meta['name']}")
    return Counter(manifest["metadata"]["labels"][group] for manifest in manifests)


class _EmbeddedCluster(Cluster):
    subject, remedy = "embedded control plane", "start it with `gpuform local start`"


def runtime_classes(env: Environment) -> Iterator[Manifest]:
    """RuntimeClasses that pods name and the operator does not create; the cluster has them already."""
    created = None if env.gpu_operator.mode == "device_plugin" else NVIDIA_RUNTIME
    named = {env.runtime_class, *(workload.runtime_class for workload in env.workloads)}
    for name in sorted(filter(None, named - {created})):
        metadata = {"name": name}
        yield {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata, "handler": name}


def _reservation_note(env: Environment) -> Iterator[str]:
    reservations = [reservation for pool in env.pools for reservation in reservations_of(env, pool)]
    details = [f"{item.total} {item.machine} in {item.zone} in {item.id}" for item in reservations]
    if details:
        yield f"the size of a reservation is not declared; simulated: {', '.join(details)}"


def _host_nodes(env: Environment, pool: Pool) -> Iterator[Manifest]:
    assert isinstance(env.cluster, HostsCluster)
    gpu = pool.gpus[0].name if pool.gpus else None
    machine = Machine(OWN_HOST, "openstack", _CORES, _GIB, gpu, pool.gpu_count)
    for host in pool.hosts or ():
        manifest = bare_node(env, pool, machine, host.name, {SELECTED: pool.name})
        del manifest["metadata"]["labels"][INSTANCE_TYPE]  # own hosts have none
        if pool.gpus:
            manifest["metadata"]["annotations"] |= {
                SIM_HOST_DRIVER: driver_of(env.cluster, pool).version,
                **_container_runtime(env.cluster),
            }
        yield manifest


def _container_runtime(cluster: HostsCluster) -> dict[str, str]:
    """As Ansible leaves it; if no version is declared, the oldest that the mode works with."""
    name = {"containerd": "containerd", "crio": "cri-o"}[cluster.runtime]
    oldest = format_version(CDI[cluster.runtime].first) if cluster.by_cdi else OLDEST
    annotations = {
        SIM_CONTAINER_RUNTIME: f"{name}://{cluster.runtime_version or oldest}",
        SIM_DEFAULT_RUNTIME: "runc",
    }
    return annotations | ({SIM_CDI: "on"} if cluster.by_cdi else {})


def _existing_node(env: Environment, index: int, pool: Pool) -> Manifest:
    machine = pool.node_machine
    if machine is None:
        choice = pool.gpu
        gpus = f"{choice.count} of {' or '.join(choice.models)}" if choice else "no machine"
        fact = f"no known machine has {gpus}, so its nodes cannot be simulated"
        raise InputError(f"pools[{index}].gpu", fact, "name a machine, or another count")
    manifest = bare_node(env, pool, machine, f"{pool.name}-0", dict(pool.selector or {}))
    if machine.model and env.ownership.driver != "operator":
        manifest["metadata"]["annotations"][SIM_HOST_DRIVER] = versions.GPU_DRIVER
    return manifest
