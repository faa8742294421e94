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
from gpuform.clients.aws.api import answers, client
from infra import versions
from infra.model import labels
from infra.model.machines import Machine
from infra.model.node_room import allocatable
from infra.plan.nodes import fabric, gpus, sizes
from lab.rehearse.cloud.answers import ACCOUNT
from lab.rehearse.cloud.fleet import Fleets
from lab.rehearse.cloud.market import Bought, Market
from lab.rehearse.cluster import NODES, Cluster

_LOOK_S = 0.25
_LOST_S = 2.0  # until the cloud controller deletes the node of an ended instance; minutes in reality
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
        self._lost: dict[str, float] = {}  # node -> when its instance ended
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.trouble: tuple[str, ...] = ()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(timeout=60)

    def reclaim(self, id: str, after_s: float) -> None:
        """Terminate an instance after ``after_s``, as AWS does with spot."""
        self._reclaims[id] = time.monotonic() + after_s

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            try:
                self._look()
                self.trouble = ()
            except Failure as error:
                self.trouble = (str(error),)
            except Exception as error:  # if this thread ended, no instance would join, without a message
                self.trouble = (f"{type(error).__name__}: {error}",)

    def _look(self) -> None:
        book = self._market.bought()  # read before ``running``: an instance sold in between has not ended
        running = self._running()
        due = [id for id, at in list(self._reclaims.items()) if at <= time.monotonic() and id in running]
        if due:
            with answers("the simulated AWS"):
                client("ec2", self._region).terminate_instances(InstanceIds=due)
            running = {id: address for id, address in running.items() if id not in due}
        for one in book:
            if one.ended is None and one.id not in running:
                self._market.ended([one.id])
                if one.node:
                    self._lost[one.node] = time.monotonic()
        self._let_join(running)
        self._take_away()

    def _let_join(self, running: Mapping[str, str]) -> None:
        since = time.time() - self._join_s
        waiting = [one for one in self._market.bought() if one.node is None and one.id in running]
        nodes = {one.id: self._node(one, running[one.id]) for one in waiting if one.launched <= since}
        self._cluster.apply(nodes.values())
        for id, made in nodes.items():
            self._market.joined(id, made["metadata"]["name"])

    def _take_away(self) -> None:
        """Delete nodes ``_LOST_S`` after their instance ended."""
        gone = [name for name, since in self._lost.items() if since < time.monotonic() - _LOST_S]
        for name in gone:
            self._cluster.delete(f"{NODES}/{name}")
            del self._lost[name]

    def _node(self, one: Bought, address: str) -> Manifest:
        name = f"ip-{address.replace('.', '-')}.{self._region}.compute.internal"
        told, adapters = kubelet(self._fleets.user_data[one.id]), self._fleets.adapters[one.id]
        return node(self._market.machines[one.machine], name, one.id, one.zone, self._region, told, adapters)

    def _running(self) -> dict[str, str]:
        from moto.ec2.models import ec2_backends

        backend = ec2_backends[ACCOUNT][self._region]
        all_of_them = [
            one for reservation in list(backend.reservations.values()) for one in reservation.instances
        ]
        return {one.id: str(one.private_ip) for one in all_of_them if one.state == "running"}


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


def kubelet(user_data: str) -> Kubelet:
    """Read user data, base64 of MIME parts or of TOML; later parts override earlier ones."""
    text = base64.b64decode(user_data).decode("utf-8", "replace")
    found = Kubelet()
    if text.lstrip().startswith("["):
        _bottlerocket(tomllib.loads(text), found)
        return found
    for part in email.message_from_string(text).walk():
        if pages := _HUGE_PAGES.search(str(part.get_payload())):
            found.huge_pages = int(pages[1])
        if part.get_content_type() == _NODE_CONFIG:
            config = yaml.safe_load(str(part.get_payload())) or {}
            _node_config((config.get("spec") or {}).get("kubelet") or {}, found)
    return found


def _node_config(given: Mapping[str, Any], found: Kubelet) -> None:
    config = given.get("config") or {}
    found.max_pods = config.get("maxPods", found.max_pods)
    found.taints += config.get("registerWithTaints") or []
    for flag in given.get("flags") or ():
        name, _, value = str(flag).partition("=")
        if name == "--node-labels":
            found.labels |= dict(pair.split("=", 1) for pair in value.strip('"').split(",") if pair)


def _bottlerocket(settings: Mapping[str, Any], found: Kubelet) -> None:
    sysctl = settings.get("settings", {}).get("kernel", {}).get("sysctl", {})
    found.huge_pages = int(sysctl.get("vm.nr_hugepages", found.huge_pages))
    given = settings.get("settings", {}).get("kubernetes", {})
    found.labels |= given.get("node-labels", {})
    found.max_pods = found.reserves_for = given.get("max-pods", found.max_pods)
    for key, values in given.get("node-taints", {}).items():
        for one in values if isinstance(values, list) else [values]:
            value, _, effect = str(one).rpartition(":")
            taint = {"key": key, "effect": effect}
            found.taints.append({**taint, "value": value} if value else taint)


def node(
    machine: Machine, name: str, id: str, zone: str, region: str, told: Kubelet, adapters: int = 0
) -> Manifest:
    """The Node as its kubelet registers it, with the hardware for the simulator in annotations.

    ``adapters``: Elastic Fabric Adapters that the instance was launched with.
    """
    room = allocatable(machine, told.max_pods or machine.pods, told.reserves_for or machine.pods)
    aside = told.huge_pages * 2
    annotations = {
        labels.KWOK_NODE: "fake",
        **sizes(replace(room, memory=room.memory - aside)),
        **fabric(aside, adapters),
        **hardware(machine),
    }
    own = {
        labels.HOSTNAME: name,
        labels.OS: "linux",
        labels.ARCH: machine.arch,
        labels.INSTANCE_TYPE: machine.name,
        "topology.kubernetes.io/region": region,
        labels.ZONE: zone,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**told.labels, **own}, "annotations": annotations},
        "spec": {"providerID": f"aws:///{zone}/{id}", "taints": told.taints},
    }


def hardware(machine: Machine) -> dict[str, str]:
    """Annotations that tell the simulator which GPUs are in a node, and that its image has a driver."""
    return {**gpus(machine), labels.SIM_HOST_DRIVER: versions.GPU_DRIVER} if machine.model else {}
