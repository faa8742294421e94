"""The cluster's objects, kept up to date by list and watch; each change reports the nodes affected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import httpx

from lab.simulator import keys, operator
from lab.simulator.api import Api, Gone
from lab.simulator.claimed import CLAIMS, SLICES, Claimed
from lab.simulator.claimed import OURS as DRA_SLICES
from lab.simulator.objects import Node, Pod, node_of, pod_of
from lab.simulator.volumes import CLAIMS as VOLUME_CLAIMS
from lab.simulator.volumes import Volumes
from lab.simulator.world import Cluster

Json = dict[str, Any]
log = logging.getLogger("simulator")
OURS = f"{keys.PART_OF} in ({','.join(keys.CHARTS)})"
NODES, PODS, DEPLOYMENTS = "/api/v1/nodes", "/api/v1/pods", "/apis/apps/v1/deployments"


class Store:
    """Nodes, operand and GPU pods, the operator's Deployments and the ConfigMaps of their namespaces."""

    def __init__(self, api: Api, changed: Callable[[Iterable[str]], None]) -> None:
        """``changed`` gets the names of the nodes to reconcile."""
        self._api = api
        self._changed = changed
        self.nodes: dict[str, Node] = {}
        self.pods: dict[tuple[str, str], Pod] = {}
        self.on_node: dict[str, dict[tuple[str, str], Pod]] = {}
        self.config_maps: dict[tuple[str, str], dict[str, str]] = {}
        self.deployments: dict[tuple[str, str], str] = {}
        self.cluster = Cluster()
        self.claimed = Claimed(changed)
        self._synced: set[str] = set()
        self._config_watches: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._follow(NODES, {}, self.put_node, self._drop_node))
            bound = {"fieldSelector": "spec.nodeName!="}
            group.create_task(self._follow(PODS, bound, self.put_pod, self._drop_pod))
            ours = {"labelSelector": OURS}
            group.create_task(self._follow(DEPLOYMENTS, ours, self._put_deployment, self._drop_deployment))
            mine = self.claimed
            group.create_task(self._follow(SLICES, DRA_SLICES, mine.put_slice, mine.drop_slice))
            group.create_task(self._follow(CLAIMS, {}, mine.put_claim, mine.drop_claim))
            volumes = Volumes(self._api)
            group.create_task(self._follow(VOLUME_CLAIMS, {}, volumes.put, volumes.drop))

    def knows(self, pods: Sequence[Pod]) -> bool:
        """Whether all that these pods' node depends on has been listed; the node is not reconciled before."""
        maps = {_config_maps(pod.namespace) for pod in pods if pod.template.config_map}
        claimed = {SLICES, CLAIMS} if any(pod.operand == keys.DRA_OPERAND for pod in pods) else set()
        return self._synced >= {NODES, PODS, DEPLOYMENTS, *maps, *claimed}

    async def _follow(
        self,
        path: str,
        params: dict[str, str],
        put: Callable[[Json, bool], None],
        drop: Callable[[str, str], None],
    ) -> None:
        """List, watch, and list again whenever the watch breaks: the server may restart."""
        known: set[tuple[str, str]] = set()
        pause = 0.2
        while True:
            try:
                listed: set[tuple[str, str]] = set()
                async for items, found in self._api.pages(path, params):
                    version = found
                    for item in items:
                        listed.add(_key(item))
                        put(item, True)
                for key in known - listed:
                    drop(*key)
                known = listed
                if path not in self._synced:
                    self._synced.add(path)
                    self._changed(list(self.nodes))
                pause = 0.2
                while True:
                    async for kind, item in self._api.watch(path, params, version):
                        version = item["metadata"]["resourceVersion"]
                        if kind == "DELETED":
                            known.discard(_key(item))
                            drop(*_key(item))
                        elif kind != "BOOKMARK":
                            known.add(_key(item))
                            put(item, False)
            except Gone:
                log.info("watch of %s is too old: listing again", path)
            except (httpx.HTTPError, ValueError, KeyError) as error:
                log.info("watch of %s broke (%s): again in %.1f s", path, type(error).__name__, pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 3.0)

    def put_node(self, raw: Json, listed: bool = False) -> None:
        """Ignore a node older than the known one, unless it was ``listed``."""
        node = node_of(raw)
        old = self.nodes.get(node.name)
        if listed or old is None or old.uid != node.uid or old.version < node.version:
            self.nodes[node.name] = node
            if old is None or _differs(old, node):
                self._changed((node.name,))

    def _drop_node(self, _: str, name: str) -> None:
        self.nodes.pop(name, None)

    def put_pod(self, raw: Json, listed: bool = False) -> None:
        """Ignore a pod older than the known one, unless it was ``listed``."""
        pod = pod_of(raw)
        if pod is None:
            return
        key = (pod.namespace, pod.name)
        old = self.pods.get(key)
        if not listed and old is not None and old.uid == pod.uid and old.version >= pod.version:
            return
        self.pods[key] = pod
        self.on_node.setdefault(pod.node, {})[key] = pod
        if pod.template.config_map:
            self._watch_config_maps(pod.namespace)
        self._cluster_changed(pod)
        self._changed((pod.node,))

    def _watch_config_maps(self, namespace: str) -> None:
        path = _config_maps(namespace)
        if path not in self._config_watches:
            follow = self._follow(path, {}, self._put_config_map, self._drop_config_map)
            self._config_watches[path] = self._group.create_task(follow)

    def _drop_pod(self, namespace: str, name: str) -> None:
        pod = self.pods.pop((namespace, name), None)
        if pod is not None:
            self.on_node.get(pod.node, {}).pop((namespace, name), None)
            self._cluster_changed(pod)
            self._changed((pod.node,))

    def _put_deployment(self, raw: Json, _: bool) -> None:
        self.deployments[_key(raw)] = raw["metadata"].get("labels", {}).get("app", "")
        self._cluster_changed(None)

    def _drop_deployment(self, namespace: str, name: str) -> None:
        self.deployments.pop((namespace, name), None)
        self._cluster_changed(None)

    def _put_config_map(self, raw: Json, _: bool) -> None:
        self.config_maps[_key(raw)] = dict(raw.get("data") or {})
        self._readers_changed(*_key(raw))

    def _drop_config_map(self, namespace: str, name: str) -> None:
        self.config_maps.pop((namespace, name), None)
        self._readers_changed(namespace, name)

    def _readers_changed(self, namespace: str, name: str) -> None:
        readers = (p for p in self.pods.values() if p.template.config_map == name)
        self._changed({pod.node for pod in readers if pod.namespace == namespace})

    def _cluster_changed(self, pod: Pod | None) -> None:
        """Recompute the facts of the whole cluster; if they change, all nodes are reconciled."""
        if pod is not None and pod.operand not in ("operator", "nfd-master"):
            return
        apps = set(self.deployments.values())
        operators = [p for p in self.pods.values() if p.operand == "operator" and p.running]
        masters = [p for p in self.pods.values() if p.operand == "nfd-master" and p.running]
        found = Cluster(
            operator_installed="gpu-operator" in apps,
            operator_running=bool(operators),
            nfd_installed="node-feature-discovery-master" in apps,
            nfd_running=bool(masters),
            mig_default=operators[0].template.value(operator.MIG_DEFAULT) if operators else "",
        )
        if found != self.cluster:
            self.cluster = found
            self._changed(list(self.nodes))


def _config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def _key(raw: Json) -> tuple[str, str]:
    return raw["metadata"].get("namespace", ""), raw["metadata"]["name"]


def _differs(old: Node, new: Node) -> bool:
    """False for a heartbeat, which changes only the version."""
    return replace(old, version=0) != replace(new, version=0)
