"""Waiting, with an end: until an object is ready, until it is gone."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from gpuform.plugins.handler import Call, Cancelled, PluginError, Properties
from gpuform.plugins.kubernetes.client import ApiError, Client
from gpuform.plugins.kubernetes.discovery import ResourceType
from gpuform.plugins.kubernetes.manifests import TIMEOUT, annotation
from gpuform.plugins.kubernetes.messages import subject
from gpuform.plugins.kubernetes.readiness import Manifest, Waiting, readiness, worst

DEFAULT_SECONDS = 600.0  # the official provider's for most kinds
_SECONDS = {"PersistentVolumeClaim": 300.0}
_WITH_PODS = ("Deployment", "DaemonSet", "StatefulSet", "Job")
_EXPLAIN_SECONDS = 2.0  # how often pods and events are looked at for the reason


class NotReady(Exception):
    """The object exists and is not ready; ``live`` is how it was last seen."""

    def __init__(self, reason: str, live: dict[str, Any]) -> None:
        """``reason`` is a sentence that names the object."""
        super().__init__(reason)
        self.live = live


def limit(call: Call, inputs: Properties) -> float:
    """Seconds to wait: the resource's customTimeouts, else its annotation, else the kind's default."""
    if call.timeout:
        return call.timeout
    try:
        seconds = float(annotation(inputs, TIMEOUT) or 0)
    except ValueError:
        raise PluginError(
            f"{call.name}: annotation {TIMEOUT} is {annotation(inputs, TIMEOUT)!r}; give whole seconds"
        ) from None
    return seconds or _SECONDS.get(str(inputs.get("kind")), DEFAULT_SECONDS)


async def _ticks(call: Call, seconds: float) -> AsyncIterator[float]:
    """Yield the seconds gone by, often at first, until ``seconds`` are over."""
    begun, pause = time.monotonic(), 0.05
    while (gone := time.monotonic() - begun) < seconds:
        yield gone
        await call.sleep(min(pause, max(seconds - gone, 0.01)))
        pause = min(pause * 1.5, 1.0)


async def until_ready(
    call: Call, client: Client, path: str, live: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Return the object as soon as it is ready; `NotReady` says why it is not.

    The reason is looked for in the object, its pods and its events, and shown while waiting.
    """
    name, said, looked = subject(live), "", 0.0
    state = readiness(live)
    try:
        async for gone in _ticks(call, seconds):
            if state.ready or state.failed:
                break
            if gone - looked >= _EXPLAIN_SECONDS:
                looked = gone
                text = await explain(client, live, state)
                if text != said:
                    said = text
                    await call.status(f"waiting for {name}: {text}")
            found = await client.find(path)
            if found is None or found["metadata"]["uid"] != live["metadata"]["uid"]:
                raise NotReady(f"{name}: it was deleted while it was waited for", live)
            live, state = found, readiness(found)
            if not state.ready and await _binds_later(client, live):
                return live
    except Cancelled:
        raise NotReady(f"{name}: cancelled while it was waited for: {state.missing}", live) from None
    if state.ready:
        return live
    text = await explain(client, live, state)
    if state.failed:
        raise NotReady(f"{name}: {text}", live)
    raise NotReady(f"{name}: not ready after {seconds:g} s: {text}", live)


async def explain(client: Client, live: Manifest, state: Waiting) -> str:
    """What is missing, with the word of the pods and events that stand in the way."""
    try:
        more = await _pods(client, live) or await _event(client, live, state)
    except PluginError:
        more = ""
    return f"{state.missing}; {more}" if more else state.missing


async def _pods(client: Client, live: Manifest) -> str:
    if live["kind"] not in _WITH_PODS:
        return ""
    selector = ((live.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    if not selector:
        return ""
    labels = ",".join(f"{key}={value}" for key, value in selector.items())
    path = f"/api/v1/namespaces/{live['metadata']['namespace']}/pods"
    answer = await client.get(path, {"labelSelector": labels, "limit": "50"})
    return worst(answer.get("items", ()))


async def _event(client: Client, live: Manifest, state: Waiting) -> str:
    metadata = live["metadata"]
    if ": " in state.missing and live["kind"] == "Pod":
        return ""  # the pod says it itself
    path = f"/api/v1/namespaces/{metadata.get('namespace', 'default')}/events"
    selector = f"involvedObject.uid={metadata['uid']},type=Warning"
    events = (await client.get(path, {"fieldSelector": selector, "limit": "20"})).get("items") or []
    if not events:
        return ""
    last = max(events, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))
    return f"{last.get('reason')}: {' '.join(str(last.get('message')).split())}"


async def _binds_later(client: Client, live: Manifest) -> bool:
    """Whether this is a claim that is bound with its first pod, which cannot be waited for."""
    if live["kind"] != "PersistentVolumeClaim":
        return False
    name = (live.get("spec") or {}).get("storageClassName")
    found = await client.find(f"/apis/storage.k8s.io/v1/storageclasses/{name}") if name else None
    return bool(found) and (found or {}).get("volumeBindingMode") == "WaitForFirstConsumer"


async def until_gone(call: Call, client: Client, path: str, live: Mapping[str, Any], seconds: float) -> None:
    """Return once the object is gone or another one bears its name; `PluginError` names what holds it."""
    name, said, found = subject(live), "", dict(live)
    async for gone in _ticks(call, seconds):
        try:
            answer = await client.find(path)
        except ApiError as error:
            if error.code == 405:  # the kind's definition is going, and the object with it
                return
            raise
        if answer is None or answer["metadata"]["uid"] != live["metadata"]["uid"]:
            return
        found = answer
        if gone >= _EXPLAIN_SECONDS and (text := held_by(found)) != said:
            said = text
            await call.status(f"waiting until {name} is gone: {text}")
    raise PluginError(f"{name}: still there after {seconds:g} s: {held_by(found)}")


def held_by(live: Mapping[str, Any]) -> str:
    """Why an object that is being deleted is still there."""
    metadata = live["metadata"]
    finalizers = [*(metadata.get("finalizers") or ()), *((live.get("spec") or {}).get("finalizers") or ())]
    reasons = [
        " ".join(str(item.get("message")).split())
        for item in (live.get("status") or {}).get("conditions") or ()
        if live["kind"] == "Namespace" and item.get("status") == "True"
    ]
    if finalizers:
        who = f"held by finalizer {', '.join(finalizers)}"
        return "; ".join([who, *reasons]) + "; whoever set it must finish, or remove it by hand"
    if not metadata.get("deletionTimestamp"):
        return "the server has not begun to delete it"
    return "it is still being stopped"


async def until_known(call: Call, find: Any, seconds: float) -> ResourceType | None:
    """Ask ``find`` again and again until it returns a resource type; ``None`` after ``seconds``."""
    async for _ in _ticks(call, seconds):
        found: ResourceType | None = await find()
        if found:
            return found
    return None
