"""Played machines of Magnum's groups: one simulated node for each node that the driver reports.

They join with only the label that Magnum's own kubelets set, and are deleted when their group shrinks, as
servers are.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from infra.model import labels
from infra.model.environment import Environment
from infra.plan import magnum, played_groups
from tests.openstack.world import World

EVERY_S = 0.5
_SCAN = 10  # polls between two scans of the autoscaler, which scans every 10 s
Kubectl = Callable[..., str]


def _named(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    metadata = manifest["metadata"]
    own = {**metadata["labels"], labels.HOSTNAME: name}
    return {**manifest, "metadata": {**metadata, "name": name, "labels": own}}


class Machines:
    """The nodes of one cluster, synchronized with the driver by a thread."""

    def __init__(self, world: World, environment: Callable[[], Environment], kubectl: Kubectl) -> None:
        """``environment`` describes the groups' machines; called at each poll, since pools come and go."""
        self._world, self._environment, self._kubectl = world, environment, kubectl
        self._joined: set[str] = set()
        self._over = threading.Event()
        self.trouble = ""

    def look(self) -> None:
        env = self._environment()
        label = magnum.GROUP_LABELS[magnum.cluster_of(env).driver]
        of_group = {one["metadata"]["labels"][label]: one for one in played_groups.manifests(env)}
        wanted: dict[str, Any] = {}
        for folder in (self._world.services.played / "nodes").glob("*"):
            if folder.name in self._own():
                for group, nodes in self._world.nodes(folder.name).items():
                    if group in of_group:
                        names = [node["name"] for node in nodes]
                        wanted |= {name: _named(of_group[group], name) for name in names}
        new = [made for name, made in wanted.items() if name not in self._joined]
        gone = sorted(self._joined - wanted.keys())
        if new:
            listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": new})
            self._kubectl("apply", "-f", "-", input=listed)
        if gone:
            self._kubectl("delete", "nodes", "--ignore-not-found", *gone)
        self._joined = set(wanted)

    def grow(self) -> None:
        """Add one node to each elastic group below its maximum while a pod is unschedulable.

        Simulates cluster-autoscaler, reduced to its Magnum request: a resize of the group
        (cloudprovider/magnum/magnum_manager_impl.go).
        """
        query = "-o=jsonpath={.items[*].status.conditions[?(@.reason=='Unschedulable')].reason}"
        if not self._kubectl("get", "pods", "-A", "--field-selector=status.phase=Pending", query).strip():
            return
        magnum = self._world.magnum()
        for cluster in self._world.clusters():
            for pool in self._environment().pools:
                names = {group.name for group in magnum.nodegroups.list(cluster.uuid)}
                if pool.elastic and pool.name in names and cluster.status.endswith("_COMPLETE"):
                    group = magnum.nodegroups.get(cluster.uuid, pool.name)
                    if group.node_count < group.max_node_count:
                        magnum.clusters.resize(cluster.uuid, group.node_count + 1, nodegroup=group.uuid)

    def _own(self) -> set[str]:
        return {cluster.uuid for cluster in self._world.clusters()}

    @contextmanager
    def joining(self) -> Iterator[Machines]:
        thread = threading.Thread(target=self._follow, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()
        assert not self.trouble, self.trouble

    def _follow(self) -> None:
        looks = 0
        while not self._over.wait(EVERY_S):
            looks += 1
            try:
                self.look()
                if looks % _SCAN == 0:
                    self.grow()
            except Exception as error:  # reported at the end, if it still persists then
                self.trouble = f"{type(error).__name__}: {error}"
            else:
                self.trouble = ""
