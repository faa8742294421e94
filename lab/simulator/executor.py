"""Carries actions out against the API server; one log line per action, nothing written twice."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import httpx

from lab.simulator import actions, pod_status, power
from lab.simulator.api import APPLY, STRATEGIC, Api
from lab.simulator.claimed import SLICES
from lab.simulator.objects import Node, Pod
from lab.simulator.store import Store

Json = dict[str, Any]
log = logging.getLogger("simulator")


class Executor:
    """Writes to the cluster and passes the server's answers to the store at once."""

    def __init__(self, api: Api, store: Store) -> None:
        self._api = api
        self._store = store
        self._recorded_events: dict[str, set[str]] = {}

    async def carry_out(self, node: Node, action: actions.Action) -> bool:
        """Carry out one action; an object deleted or changed meanwhile is left to the next reconciliation.

        False for ``Later``, or if the server answered 429: the node must be reconciled again even if nothing
        changes.
        """
        if isinstance(action, actions.Later):
            return False
        try:
            await self._execute(node, action)
        except httpx.HTTPStatusError as error:
            if error.response.status_code == 429:
                log.info("%s: %s: not yet: %s", node.name, type(action).__name__, error.response.text[:500])
                return False
            if error.response.status_code not in (404, 409):
                log.warning("%s: %s: %s", node.name, type(action).__name__, error.response.text[:500])
        return True

    async def _execute(self, node: Node, action: actions.Action) -> None:
        match action:
            case actions.NodeMeta():
                await self._node_meta(node, action)
            case actions.NodeResources():
                await self._node_resources(node, action)
            case actions.Annotate(pod, annotations, message):
                log.info("%s: %s/%s %s", node.name, pod.namespace, pod.name, message)
                body = {"metadata": {"uid": pod.uid, "annotations": annotations}}
                self._store.put_pod(await self._api.patch(_path(pod), body))
            case actions.Crash(pod, container, message):
                log.info("%s: %s/%s crash-loops: %s", node.name, pod.namespace, pod.name, message)
                await self._status(pod, pod_status.crash_loop_status(pod, container, message))
                text = f"Back-off restarting failed container {container} in pod {pod.name}: {message}"
                await self._event(node, actions.Event(pod, "BackOff", text, "kubelet"))
            case actions.Recover(pod):
                log.info("%s: %s/%s runs again", node.name, pod.namespace, pod.name)
                await self._status(pod, pod_status.recovered_status(pod))
            case actions.Reject(pod, reason, message):
                log.info("%s: %s/%s is rejected: %s", node.name, pod.namespace, pod.name, message)
                await self._status(pod, {"phase": "Failed", "reason": reason, "message": message})
                await self._event(node, actions.Event(pod, reason, message, "kubelet"))
            case actions.Fail(pod, message):
                log.info("%s: %s/%s fails: %s", node.name, pod.namespace, pod.name, message)
                await self._status(pod, pod_status.failed_status(pod, message))
            case actions.Delete(pod):
                log.info("%s: %s/%s is deleted", node.name, pod.namespace, pod.name)
                await self._api.delete(_path(pod), {"preconditions": {"uid": pod.uid}})
            case actions.Create(manifest):
                meta = manifest["metadata"]
                log.info("%s: %s/%s is created", node.name, meta["namespace"], meta["name"])
                path = f"/api/v1/namespaces/{meta['namespace']}/pods"
                self._store.put_pod(await self._api.create(path, manifest))
            case actions.Publish():
                await self._publish(node, action)
            case actions.PublishFeature(feature):
                log.info("%s: %s publishes %d labels", node.name, feature.name, len(feature.labels))
                path = f"{feature.path}?fieldManager=gpuform-simulator&force=true"
                self._store.features.put(await self._api.patch(path, feature.manifest(node), APPLY))
            case actions.Withdraw(name):
                log.info("%s: kubelet deletes ResourceSlice %s, its driver is gone", node.name, name)
                await self._api.delete(f"{SLICES}/{name}", {})
            case actions.Event():
                await self._event(node, action)
            case actions.Power(on):
                log.info("%s: %s", node.name, "has booted" if on else "reboots")
                for raw in await (power.power_on if on else power.power_off)(self._api, node):
                    self._store.put_pod(raw)

    async def _publish(self, node: Node, action: actions.Publish) -> None:
        spec, name = action.manifest["spec"], action.manifest["metadata"]["name"]
        names = ", ".join(device["name"] for device in spec["devices"]) or "no device"
        log.info("%s: DRA driver publishes %s", node.name, names)
        if action.exists:
            answer = await self._api.patch(f"{SLICES}/{name}", action.manifest)
        else:
            answer = await self._api.create(SLICES, action.manifest)
        self._store.claimed.put_slice(answer)

    async def _node_meta(self, node: Node, action: actions.NodeMeta) -> None:
        changed = {**action.labels, **action.annotations}
        changes = [f"{key}={'(off)' if value is None else value}" for key, value in changed.items()]
        log.info("%s: %s sets %s", node.name, action.component, "; ".join(changes[:4]))
        parts = {"labels": action.labels, "annotations": action.annotations}
        meta = {"uid": node.uid} | {key: value for key, value in parts.items() if value}
        self._store.put_node(await self._api.patch(f"/api/v1/nodes/{node.name}", {"metadata": meta}))

    async def _node_resources(self, node: Node, action: actions.NodeResources) -> None:
        text = ", ".join(f"{name} {count}" for name, count in sorted(action.allocatable.items()))
        log.info("%s: kubelet offers %s", node.name, text or "the same, with less capacity")
        status = {
            "capacity": {name: str(count) for name, count in action.capacity.items()},
            "allocatable": {name: str(count) for name, count in action.allocatable.items()},
        }
        path = f"/api/v1/nodes/{node.name}/status"
        self._store.put_node(await self._api.patch(path, {"status": status}))

    async def _status(self, pod: Pod, status: Json) -> None:
        body = {"metadata": {"uid": pod.uid}, "status": status}
        self._store.put_pod(await self._api.patch(f"{_path(pod)}/status", body, STRATEGIC))

    async def _event(self, node: Node, event: actions.Event) -> None:
        """Create an Event once per object, reason and message."""
        uid = event.pod.uid if event.pod else node.uid
        digest = hashlib.sha256(f"{uid}{event.reason}{event.message}".encode()).hexdigest()[:16]
        if digest in self._recorded_events.setdefault(uid, set()):
            return
        if len(self._recorded_events) > 4096:
            self._recorded_events.clear()
        self._recorded_events.setdefault(uid, set()).add(digest)
        namespace = event.pod.namespace if event.pod else "default"
        name = event.pod.name if event.pod else node.name
        kind = {"kind": "Pod", "namespace": namespace} if event.pod else {"kind": "Node"}
        body = {
            "metadata": {"name": f"{name}.{digest}", "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", **kind, "name": name, "uid": uid},
            "reason": event.reason,
            "message": event.message[:1024],
            "type": "Warning",
            "count": 1,
            "source": {"component": event.component, "host": node.name},
            "firstTimestamp": pod_status.timestamp(),
            "lastTimestamp": pod_status.timestamp(),
        }
        log.info("%s: event on %s: %s: %s", node.name, name, event.reason, event.message)
        await self._api.create(f"/api/v1/namespaces/{namespace}/events", body)


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
