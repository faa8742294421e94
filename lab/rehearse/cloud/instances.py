"""Simulated instances: they become nodes, are reclaimed, and their nodes are then deleted.

A node is as its kubelet would register it: with the labels, the taints and the number of pods from its
instance's user data, and nothing that Karpenter or the operator add later. AL2023's NodeConfig and
Bottlerocket's settings (TOML) are read. Its cpu and memory are what the kubelet leaves of the machine.
"""

from __future__ import annotations

import base64
import email
import re
import threading
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from gpuform.checkout.errors import Failure
from gpuform.clients.aws.api import create_client, translate_errors
from infra import versions
from infra.model.base.labels import (
    ARCH,
    HOSTNAME,
    INSTANCE_TYPE,
    KWOK_NODE,
    OS,
    SIM_HOST_DRIVER,
    SIM_MEMORY_CAPACITY,
    ZONE,
)
from infra.model.gpu.machines import Machine
from infra.model.placement.node_resources import allocatable, capacity_mib
from infra.plan.nodes import device_annotations, gpu_annotations, size_annotations
from lab.rehearse.cloud.answers import ACCOUNT
from lab.rehearse.cloud.fleet import Fleets
from lab.rehearse.cloud.market import LaunchedInstance, Market
from lab.rehearse.cluster import NODES, Cluster

_INTERVAL_S = 0.25
_REMOVAL_S = 2.0  # until the cloud controller deletes the node of an ended instance; minutes in reality
_NODE_CONFIG = "application/node.eks.aws"
_HUGE_PAGES = re.compile(r"^sysctl -w vm\.nr_hugepages=(\d+)$", re.MULTILINE)

Manifest = dict[str, Any]


class Instances:
    """Manages the instances of one region from a thread of its own.

    ``fleets`` launched them; ``join_s``: seconds from its launch until an instance becomes a node.
    """

    def __init__(self, region: str, market: Market, fleets: Fleets, cluster: Cluster, join_s: float) -> None:
        self._region, self._market, self._fleets = region, market, fleets
        self._cluster, self._join_s = cluster, join_s
        self._reclaims: dict[str, float] = {}
        self._ended_at: dict[str, float] = {}  # node -> when its instance ended
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.trouble: tuple[str, ...] = ()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=60)

    def reclaim(self, id: str, after_s: float) -> None:
        """Terminate an instance after ``after_s``, as AWS does with spot."""
        self._reclaims[id] = time.monotonic() + after_s

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            try:
                self._step()
                self.trouble = ()
            except Failure as error:
                self.trouble = (str(error),)
            except Exception as error:  # if this thread ended, no instance would join, without a message
                self.trouble = (f"{type(error).__name__}: {error}",)

    def _step(self) -> None:
        # Read before ``running``: an instance launched in between has not ended.
        launched = self._market.instances()
        running = self._running()
        due = [id for id, at in list(self._reclaims.items()) if at <= time.monotonic() and id in running]
        if due:
            with translate_errors("the simulated AWS"):
                create_client("ec2", self._region).terminate_instances(InstanceIds=due)
            running = {id: address for id, address in running.items() if id not in due}
        for instance in launched:
            if instance.ended is None and instance.id not in running:
                self._market.record_end(instance.id)
                if instance.node:
                    self._ended_at[instance.node] = time.monotonic()
        self._join_nodes(running)
        self._delete_nodes()

    def _join_nodes(self, running: Mapping[str, str]) -> None:
        latest = time.time() - self._join_s
        waiting = [item for item in self._market.instances() if item.node is None and item.id in running]
        nodes = {item.id: self._node(item, running[item.id]) for item in waiting if item.launched <= latest}
        self._cluster.apply(nodes.values())
        for id, manifest in nodes.items():
            self._market.record_join(id, manifest["metadata"]["name"])

    def _delete_nodes(self) -> None:
        """Delete nodes ``_REMOVAL_S`` after their instance ended."""
        gone = [name for name, since in self._ended_at.items() if since < time.monotonic() - _REMOVAL_S]
        for name in gone:
            self._cluster.delete(f"{NODES}/{name}")
            del self._ended_at[name]

    def _node(self, instance: LaunchedInstance, address: str) -> Manifest:
        name = f"ip-{address.replace('.', '-')}.{self._region}.compute.internal"
        kubelet = read_user_data(self._fleets.user_data[instance.id])
        place = name, instance.id, instance.zone, self._region
        adapters = self._fleets.adapters[instance.id]
        return node_manifest(self._market.machines[instance.machine], *place, kubelet, adapters)

    def _running(self) -> dict[str, str]:
        from moto.ec2.models import ec2_backends

        backend = ec2_backends[ACCOUNT][self._region]
        reservations = list(backend.reservations.values())
        instances = [item for reservation in reservations for item in reservation.instances]
        return {item.id: str(item.private_ip) for item in instances if item.state == "running"}


@dataclass
class Kubelet:
    """Settings of the kubelet and the kernel from user data."""

    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)
    max_pods: int | None = None
    huge_pages: int = 0
    """Huge pages of 2 MiB."""
    reserves_for: int | None = None
    """Pods that count for the reserved memory; AL2023's nodeadm counts those of the network interfaces."""


def read_user_data(user_data: str) -> Kubelet:
    """Read user data, base64 of MIME parts or of TOML; later parts override earlier ones."""
    text = base64.b64decode(user_data).decode("utf-8", "replace")
    kubelet = Kubelet()
    if text.lstrip().startswith("["):
        _bottlerocket(tomllib.loads(text), kubelet)
        return kubelet
    for part in email.message_from_string(text).walk():
        if pages := _HUGE_PAGES.search(str(part.get_payload())):
            kubelet.huge_pages = int(pages[1])
        if part.get_content_type() == _NODE_CONFIG:
            config = yaml.safe_load(str(part.get_payload())) or {}
            _node_config((config.get("spec") or {}).get("kubelet") or {}, kubelet)
    return kubelet


def _node_config(kubelet_config: Mapping[str, Any], kubelet: Kubelet) -> None:
    config = kubelet_config.get("config") or {}
    kubelet.max_pods = config.get("maxPods", kubelet.max_pods)
    kubelet.taints += config.get("registerWithTaints") or []
    for flag in kubelet_config.get("flags") or ():
        name, _, value = str(flag).partition("=")
        if name == "--node-labels":
            kubelet.labels |= dict(pair.split("=", 1) for pair in value.strip('"').split(",") if pair)


def _bottlerocket(settings: Mapping[str, Any], kubelet: Kubelet) -> None:
    sysctl = settings.get("settings", {}).get("kernel", {}).get("sysctl", {})
    kubelet.huge_pages = int(sysctl.get("vm.nr_hugepages", kubelet.huge_pages))
    kubernetes = settings.get("settings", {}).get("kubernetes", {})
    kubelet.labels |= kubernetes.get("node-labels", {})
    kubelet.max_pods = kubelet.reserves_for = kubernetes.get("max-pods", kubelet.max_pods)
    for key, values in kubernetes.get("node-taints", {}).items():
        for text in values if isinstance(values, list) else [values]:
            value, _, effect = str(text).rpartition(":")
            taint = {"key": key, "effect": effect}
            kubelet.taints.append({**taint, "value": value} if value else taint)


def node_manifest(
    machine: Machine, name: str, id: str, zone: str, region: str, kubelet: Kubelet, adapters: int = 0
) -> Manifest:
    """The Node as its kubelet registers it, with the hardware for the simulator in annotations.

    ``adapters``: Elastic Fabric Adapters that the instance was launched with.
    """
    free = allocatable(machine, kubelet.max_pods or machine.pods, kubelet.reserves_for or machine.pods)
    huge = kubelet.huge_pages * 2
    memory = f"{capacity_mib(machine)}Mi"
    annotations = {
        KWOK_NODE: "fake",
        **size_annotations(replace(free, memory=free.memory - huge)),
        **device_annotations(huge, adapters),
        **driver_annotations(machine),
        SIM_MEMORY_CAPACITY: memory,
    }
    node_labels = {
        HOSTNAME: name,
        OS: "linux",
        ARCH: machine.arch,
        INSTANCE_TYPE: machine.name,
        "topology.kubernetes.io/region": region,
        ZONE: zone,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**kubelet.labels, **node_labels}, "annotations": annotations},
        "spec": {"providerID": f"aws:///{zone}/{id}", "taints": kubelet.taints},
        # Karpenter takes the memory of further nodes of the type from the capacity at registration.
        "status": {"capacity": {"memory": memory}},
    }


def driver_annotations(machine: Machine) -> dict[str, str]:
    """Annotations that tell the simulator which GPUs are in a node, and that its image has a driver."""
    return {**gpu_annotations(machine), SIM_HOST_DRIVER: versions.GPU_DRIVER} if machine.model else {}
