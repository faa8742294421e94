"""The cluster's objects, kept up to date by list and watch; each change reports the nodes affected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import httpx

from lab.simulator import keys, operands, real_operator
from lab.simulator.api import Api, Gone
from lab.simulator.claimed import CLAIMS, DRA_SLICES, SLICES, ClaimStore
from lab.simulator.features import FEATURES, FeatureStore
from lab.simulator.objects import Node, Pod, parse_node, parse_pod
from lab.simulator.volumes import VOLUME_CLAIMS, Volumes
from lab.simulator.world import Cluster

Json = dict[str, Any]
log = logging.getLogger("simulator")
Put = Callable[[Json, bool, bool], None]
"""Takes an object, whether it was listed rather than watched, and whether it is gone (then: its name)."""
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
        self.claimed = ClaimStore(changed)
        self._synced: set[str] = set()
        self._config_watches: dict[str, asyncio.Task[None]] = {}
        self.features = FeatureStore(changed)
        self._feature_watch: asyncio.Task[None] | None = None

    async def run(self) -> None:
        watched: tuple[tuple[str, dict[str, str], Put], ...] = (
            (NODES, {}, self.put_node),
            (PODS, {"fieldSelector": "spec.nodeName!="}, self.put_pod),
            (DEPLOYMENTS, {}, self._put_deployment),
            (SLICES, DRA_SLICES, self.claimed.put_slice),
            (CLAIMS, {}, self.claimed.put_claim),
            (VOLUME_CLAIMS, {}, Volumes(self._api).put),
        )
        async with asyncio.TaskGroup() as self._group:
            for watch_args in watched:
                self._group.create_task(self._follow(*watch_args))

    def has_listed(self, pods: Sequence[Pod]) -> bool:
        """Whether all that these pods' node depends on has been listed; the node is not reconciled before."""
        maps = {_config_maps(pod.namespace) for pod in pods if pod.template.config_map}
        claimed = {SLICES, CLAIMS} if any(pod.operand == keys.DRA_OPERAND for pod in pods) else set()
        features = {FEATURES} if self.cluster.is_real else set()
        return self._synced >= {NODES, PODS, DEPLOYMENTS, *maps, *claimed, *features}

    async def _follow(self, path: str, params: dict[str, str], put: Put) -> None:
        """List, watch, and list again whenever the watch breaks: the server may restart."""
        known: set[tuple[str, str]] = set()
        pause = 0.2
        while True:
            try:
                listed: set[tuple[str, str]] = set()
                async for items, list_version in self._api.pages(path, params):
                    version = list_version
                    for item in items:
                        listed.add(_key(item))
                        put(item, True, False)
                for namespace, name in known - listed:
                    put({"metadata": {"namespace": namespace, "name": name}}, True, True)
                known = listed
                if path not in self._synced:
                    self._synced.add(path)
                    self._changed(list(self.nodes))
                pause = 0.2
                while True:
                    async for kind, item in self._api.watch(path, params, version):
                        version = item["metadata"]["resourceVersion"]
                        if kind != "BOOKMARK":
                            (known.discard if kind == "DELETED" else known.add)(_key(item))
                            put(item, False, kind == "DELETED")
            except Gone:
                log.info("watch of %s is too old: listing again", path)
            except (httpx.HTTPError, ValueError, KeyError) as error:
                log.info("watch of %s broke (%s): again in %.1f s", path, type(error).__name__, pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 3.0)

    def put_node(self, raw: Json, listed: bool = False, gone: bool = False) -> None:
        """Ignore a node older than the known one, unless it was ``listed``; a heartbeat changes nothing."""
        if gone:
            self.nodes.pop(raw["metadata"]["name"], None)
            return
        node = parse_node(raw)
        old = self.nodes.get(node.name)
        if listed or old is None or old.uid != node.uid or old.version < node.version:
            self.nodes[node.name] = node
            if old is None or replace(old, version=0) != replace(node, version=0):
                self._changed((node.name,))

    def put_pod(self, raw: Json, listed: bool = False, gone: bool = False) -> None:
        """Ignore a pod older than the known one, unless it was ``listed``."""
        key = _key(raw)
        old = self.pods.get(key)
        pod = old if gone else parse_pod(raw)
        if pod is None:
            return
        if gone:
            del self.pods[key]
            self.on_node.get(pod.node, {}).pop(key, None)
        elif listed or old is None or old.uid != pod.uid or old.version < pod.version:
            self.pods[key] = self.on_node.setdefault(pod.node, {})[key] = pod
            path = _config_maps(pod.namespace)
            if pod.template.config_map and path not in self._config_watches:
                follow = self._follow(path, {}, self._put_config_map)
                self._config_watches[path] = self._group.create_task(follow)
        else:
            return
        self._cluster_changed(pod)
        self._changed((pod.node,))

    def _put_deployment(self, raw: Json, _: bool, gone: bool) -> None:
        labels, key = raw["metadata"].get("labels") or {}, _key(raw)
        ours = labels.get(keys.PART_OF) in keys.CHARTS
        name = labels.get("app", "") if ours else real_operator.program(labels)
        if gone and key in self.deployments:
            del self.deployments[key]
        elif name and not gone:
            self.deployments[key] = name
        else:
            return
        self._cluster_changed(None)

    def _put_config_map(self, raw: Json, _: bool, gone: bool) -> None:
        namespace, name = key = _key(raw)
        if gone:
            self.config_maps.pop(key, None)
        else:
            self.config_maps[key] = dict(raw.get("data") or {})
        readers = (p for p in self.pods.values() if p.template.config_map == name)
        self._changed({pod.node for pod in readers if pod.namespace == namespace})

    def _cluster_changed(self, pod: Pod | None) -> None:
        """Recompute the facts of the whole cluster; if they change, all nodes are reconciled."""
        if pod is not None and pod.operand not in ("operator", "nfd-master"):
            return
        apps = set(self.deployments.values())
        operators = [p for p in self.pods.values() if p.operand == "operator" and p.running]
        masters = [p for p in self.pods.values() if p.operand == "nfd-master" and p.running]
        is_real = bool(apps & {real_operator.OPERATOR, real_operator.MASTER})
        if is_real and self._feature_watch is None:
            self._feature_watch = self._group.create_task(self._follow(FEATURES, {}, self.features.put))
        cluster = Cluster(
            is_real=is_real,
            operator_installed=bool(apps & {"gpu-operator", real_operator.OPERATOR}),
            operator_running=bool(operators),
            nfd_installed=bool(apps & {"node-feature-discovery-master", real_operator.MASTER}),
            nfd_running=bool(masters),
            mig_default=operators[0].template.value(operands.MIG_DEFAULT) if operators else "",
        )
        if cluster != self.cluster:
            self.cluster = cluster
            self._changed(list(self.nodes))


def _config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def _key(raw: Json) -> tuple[str, str]:
    return raw["metadata"].get("namespace", ""), raw["metadata"]["name"]
