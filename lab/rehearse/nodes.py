"""Nodes that no buyer creates in a rehearsal: node groups, own hosts, nodes matched by a selector.

All of them are simulated. Own hosts have their declared GPUs and driver. Their cores and memory are not
declared, so they are simulated large enough that only GPUs limit placement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import InputError
from infra import versions
from infra.model import labels
from infra.model.container_runtimes import CDI, NVIDIA_RUNTIME, spelled
from infra.model.environment import Environment
from infra.model.host_checks import driver_of
from infra.model.hosts import HostsCluster
from infra.model.machines import Machine
from infra.model.pool import Pool
from infra.plan import played_daemons, played_groups, played_nodes
from infra.plan.nodes import bare
from lab.rehearse.cloud.market import reserved
from lab.rehearse.stack_file import SELECTED

Manifest = dict[str, Any]
OWN_HOST = "own host"
OLDEST = "1.6"
"""containerd of Debian 12, the oldest system of the Ansible roles."""
_STAND_IN = "AWS resources: a stand-in checks every input and creates nothing"
_AT_MAGNUM = "Magnum resources: a stand-in checks every input and creates nothing"
_CORES, _GIB = played_nodes.UNDECLARED


@dataclass(frozen=True)
class Played:
    """The manifests, and the assumptions in them, in words."""

    manifests: tuple[Manifest, ...]
    made_up: tuple[str, ...] = ()


def played(env: Environment) -> Played:
    """The nodes, and EKS's DaemonSets, to create before the engine runs.

    None on an embedded cluster: its program creates its nodes.

    Raises InputError for a pool of an existing cluster if no known machine matches it.
    """
    if env.cluster.kind == "aws":
        made = [*played_nodes.manifests(env, waiting=True, fixed_only=True), *played_daemons.manifests(env)]
        return Played(tuple(made), (_STAND_IN, *_held(env)))
    if env.cluster.kind == "openstack":
        unknown = played_groups.unknown(env)
        sizes = (f"{unknown}; simulated: {_CORES} cores and {_GIB} GiB",) if unknown else ()
        return Played(played_groups.manifests(env), (_AT_MAGNUM, *sizes))
    if env.cluster.kind == "hosts":
        made = [one for pool in env.pools for one in _hosts(env, pool)]
        size = f"cores and memory of own hosts are not declared; simulated: {_CORES} cores, {_GIB} GiB each"
        return Played(tuple(made), (size,))
    if env.cluster.kind == "existing":
        made = [_found(env, index, pool) for index, pool in enumerate(env.pools)]
        names = ", ".join(
            f"{pool.name} as {pool.node_machine.name}" for pool in env.pools if pool.node_machine
        )
        return Played(tuple(made), (f"the number of nodes is not declared; simulated: one each, {names}",))
    return Played(())


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
