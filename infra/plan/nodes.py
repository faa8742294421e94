"""Simulated nodes of the embedded cluster, as they join before any operand has run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.model.base import labels
from infra.model.clusters import EmbeddedCluster
from infra.model.environment import Environment
from infra.model.gpu.machines import Machine
from infra.model.gpu.models import Gpu
from infra.model.placement.node_resources import PODS_PER_NODE, NodeResources, huge_pages_mib
from infra.model.platform import installed
from infra.model.pool import reset
from infra.model.pool.pool import Pool
from infra.plan import sharing

CONTAINER_RUNTIME = "containerd://2.3.4"
"""Of nodes of which nothing else is declared: the strictest (lab/simulator/container_engine.py)."""


def simulated_nodes(env: Environment, pool: Pool) -> tuple[dict[str, Any], ...]:
    """Node manifests of the pool, numbered from 0; empty on a cluster with nodes of its own."""
    if not isinstance(env.cluster, EmbeddedCluster):
        return ()
    machine = pool.node_machine
    assert machine is not None  # checked when the environment was parsed
    pool_labels = sharing.pool_labels(env, pool)  # once, as the taints: they take a while
    taints = sharing.pool_taints(env, pool)
    names = (f"{pool.name}-{index}" for index in range(pool.nodes or 0))
    nodes = tuple(_with_taints(bare_node(env, pool, machine, name, pool_labels), taints) for name in names)
    if pool.gpus and env.ownership.driver != "operator":
        driver = installed.driver_version(env.gpu_operator, [pool])
        for item in nodes:
            item["metadata"]["annotations"][labels.SIM_HOST_DRIVER] = driver
    return nodes


def gpu_annotations(machine: Machine, resettable: bool = False) -> dict[str, str]:
    """Annotations that tell the simulator a node's GPUs, and which container engine gives them to pods."""
    if machine.model is None:
        return {}
    annotations = {
        labels.SIM_GPU: machine.model.pci,
        labels.SIM_GPU_COUNT: str(machine.gpus),
        labels.SIM_CONTAINER_RUNTIME: CONTAINER_RUNTIME,
    }
    if machine.model.mig_capable and not resettable:
        annotations[labels.SIM_GPU_RESET] = "no"
    return annotations | (
        {labels.SIM_GPU_MODEL: _describe_gpu(machine.model)} if machine.model.is_declared else {}
    )


def _describe_gpu(gpu: Gpu) -> str:
    """A declared model in JSON for the simulator: its own table lacks it."""
    mig = gpu.geometry
    profiles = {
        profile.name: {
            "compute": profile.compute,
            "memory": profile.memory,
            "starts": profile.starts,
            "memory_mib": profile.memory_mib,
            "media": profile.media,
        }
        for profile in (mig.profiles if mig else ())
    }
    facts = {
        "product": gpu.device,
        "memory_mib": gpu.memory_mib,
        "compute": gpu.compute,
        "family": gpu.family,
        "last_branch": gpu.driver.last,
        "linked": gpu.nvlink,
        "mig": {"compute": mig.compute, "memory": mig.memory, "profiles": profiles} if mig else None,
    }
    return json.dumps(facts, sort_keys=True)


def size_annotations(room: NodeResources) -> dict[str, str]:
    """Annotations that tell the simulator what a node has for pods."""
    return {
        labels.SIM_CPU: f"{room.cpu}m",
        labels.SIM_MEMORY: f"{room.memory}Mi",
        labels.SIM_PODS: str(room.pods),
    }


def device_annotations(huge_pages: int, adapters: int) -> dict[str, str]:
    """Annotations that tell the simulator a node's huge pages, in MiB, and Elastic Fabric Adapters."""
    annotations = {labels.SIM_HUGE_PAGES: f"{huge_pages}Mi"} if huge_pages else {}
    return {**annotations, labels.SIM_EFA: str(adapters)} if adapters else annotations


def bare_node(
    env: Environment, pool: Pool | None, machine: Machine, name: str, creator_labels: Mapping[str, str]
) -> dict[str, Any]:
    """A node of that machine type without the platform; ``creator_labels``: those that its creator sets."""
    huge_pages = huge_pages_mib(pool) if pool else 0
    resettable = pool is not None and reset.can_reset(env.cluster.kind, pool)
    annotations = {
        labels.KWOK_NODE: "fake",
        labels.SIM_CPU: str(machine.vcpu),
        labels.SIM_MEMORY: f"{machine.memory * 1024 - huge_pages}Mi" if huge_pages else f"{machine.memory}Gi",
        labels.SIM_PODS: str(PODS_PER_NODE),
        **device_annotations(huge_pages, pool.adapters if pool else 0),
        **gpu_annotations(machine, resettable),
    }
    node_labels = {
        **creator_labels,
        labels.HOSTNAME: name,
        labels.OS: "linux",
        labels.ARCH: machine.arch,
        labels.INSTANCE_TYPE: machine.name,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": dict(sorted(node_labels.items())),
            "annotations": dict(sorted(annotations.items())),
        },
    }


def pool_node(env: Environment, pool: Pool, machine: Machine, name: str) -> dict[str, Any]:
    """A node of the pool on that machine, as it joins the cluster."""
    manifest = bare_node(env, pool, machine, name, sharing.pool_labels(env, pool))
    return _with_taints(manifest, sharing.pool_taints(env, pool))


def _with_taints(manifest: dict[str, Any], taints: list[dict[str, str]]) -> dict[str, Any]:
    return {**manifest, "spec": {"taints": taints}} if taints else manifest
