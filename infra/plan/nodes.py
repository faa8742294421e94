"""Simulated nodes of the embedded cluster, as they join before any operand has run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.model import labels, operator_checks, relayout
from infra.model.clusters import EmbeddedCluster
from infra.model.environment import Environment
from infra.model.gpu import Gpu
from infra.model.machines import Machine
from infra.model.node_room import PODS_PER_NODE, Room, huge_pages
from infra.model.pool import Pool
from infra.plan import sharing

CONTAINER_RUNTIME = "containerd://2.3.4"
"""Of nodes of which nothing else is declared: the strictest (lab/simulator/container_engine.py)."""


def simulated_nodes(env: Environment, pool: Pool) -> tuple[dict[str, Any], ...]:
    """Node manifests of the pool, numbered from 0; empty on a cluster with nodes of its own."""
    if not isinstance(env.cluster, EmbeddedCluster):
        return ()
    machine = pool.node_machine
    assert machine is not None  # checked when the environment was parsed
    own, taints = sharing.pool_labels(env, pool), sharing.pool_taints(env, pool)  # once: they take a while
    names = (f"{pool.name}-{index}" for index in range(pool.nodes or 0))
    made = tuple(_joined(bare(env, pool, machine, name, own), taints) for name in names)
    if pool.gpus and env.ownership.driver != "operator":
        driver = operator_checks.driver_version(env.gpu_operator, [pool])
        for one in made:
            one["metadata"]["annotations"][labels.SIM_HOST_DRIVER] = driver
    return made


def gpus(machine: Machine, resettable: bool = False) -> dict[str, str]:
    """Annotations that tell the simulator a node's GPUs, and which container engine gives them to pods."""
    if machine.model is None:
        return {}
    found = {
        labels.SIM_GPU: machine.model.pci,
        labels.SIM_GPU_COUNT: str(machine.gpus),
        labels.SIM_CONTAINER_RUNTIME: CONTAINER_RUNTIME,
    }
    if machine.model.mig_capable and not resettable:
        found[labels.SIM_GPU_RESET] = "no"
    return found | ({labels.SIM_GPU_MODEL: _described(machine.model)} if machine.model.own else {})


def _described(gpu: Gpu) -> str:
    """A declared model in JSON for the simulator, whose own table lacks it."""
    cut = gpu.geometry
    profiles = {
        one.name: {
            "compute": one.compute,
            "memory": one.memory,
            "starts": one.starts,
            "memory_mib": one.memory_mib,
            "media": one.media,
        }
        for one in (cut.profiles if cut else ())
    }
    described = {
        "product": gpu.device,
        "memory_mib": gpu.memory_mib,
        "compute": gpu.compute,
        "family": gpu.family,
        "last_branch": gpu.driver.last,
        "linked": gpu.nvlink,
        "mig": {"compute": cut.compute, "memory": cut.memory, "profiles": profiles} if cut else None,
    }
    return json.dumps(described, sort_keys=True)


def sizes(room: Room) -> dict[str, str]:
    """Annotations that tell the simulator what a node has for pods."""
    return {
        labels.SIM_CPU: f"{room.cpu}m",
        labels.SIM_MEMORY: f"{room.memory}Mi",
        labels.SIM_PODS: str(room.pods),
    }


def fabric(huge_pages: int, adapters: int) -> dict[str, str]:
    """Annotations that tell the simulator a node's huge pages, in MiB, and Elastic Fabric Adapters."""
    found = {labels.SIM_HUGE_PAGES: f"{huge_pages}Mi"} if huge_pages else {}
    return {**found, labels.SIM_EFA: str(adapters)} if adapters else found


def bare(
    env: Environment, pool: Pool | None, machine: Machine, name: str, own: Mapping[str, str]
) -> dict[str, Any]:
    """A node of that machine type without the platform; ``own`` are the labels that its creator sets."""
    aside = huge_pages(pool) if pool else 0
    resettable = pool is not None and relayout.resettable(env.cluster.kind, pool)
    annotations = {
        labels.KWOK_NODE: "fake",
        labels.SIM_CPU: str(machine.vcpu),
        labels.SIM_MEMORY: f"{machine.memory * 1024 - aside}Mi" if aside else f"{machine.memory}Gi",
        labels.SIM_PODS: str(PODS_PER_NODE),
        **fabric(aside, pool.adapters if pool else 0),
        **gpus(machine, resettable),
    }
    node_labels = {
        **own,
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


def node(env: Environment, pool: Pool, machine: Machine, name: str) -> dict[str, Any]:
    """A node of the pool on that machine, as it joins the cluster."""
    manifest = bare(env, pool, machine, name, sharing.pool_labels(env, pool))
    return _joined(manifest, sharing.pool_taints(env, pool))


def _joined(manifest: dict[str, Any], taints: list[dict[str, str]]) -> dict[str, Any]:
    return {**manifest, "spec": {"taints": taints}} if taints else manifest
