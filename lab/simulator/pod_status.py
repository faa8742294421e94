"""Statuses of pods that kwok does not write: crashing, failed, recovered, started again after a boot."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lab.simulator.objects import Pod

Json = dict[str, Any]
Images = tuple[tuple[str, str], ...]
"""Name and image of each container."""


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def conditions(ready: bool, **reason: str) -> Json:
    kinds, state = ("Ready", "ContainersReady"), "True" if ready else "False"
    return {
        "conditions": [{"type": t, "status": state, "lastTransitionTime": now(), **reason} for t in kinds]
    }


def crashing(pod: Pod, container: str, message: str) -> Json:
    """One container is in CrashLoopBackOff; if it is an init container, the others wait."""
    back_off = f"back-off 10s restarting failed container={container}"
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": back_off}}
    broken = {**_container(waiting, restarts=1), "lastState": _terminated(message)}
    started = pod.start == "granted" or not pod.operand
    fine = _running()
    if not started and any(name == container for name, _ in pod.template.init):
        fine = _container({"waiting": {"reason": "PodInitializing"}})
    done = _container({"terminated": {"exitCode": 0, "reason": "Completed"}}, ready=True)
    return {
        "phase": "Running" if started else "Pending",
        **conditions(False, reason="ContainersNotReady"),
        "containerStatuses": _each(pod.template.containers, fine, {container: broken}),
        "initContainerStatuses": _each(pod.template.init, done, {container: broken}),
    }


def failed(pod: Pod, message: str) -> Json:
    ended = _each(pod.template.containers, _container(_terminated(message)))
    return {
        "phase": "Failed",
        **conditions(False, reason="ContainersNotReady"),
        "containerStatuses": ended,
    }


def recovered(pod: Pod) -> Json:
    fine = _each(pod.template.containers, _running(restarts=1))
    return {"phase": "Running", **conditions(True), "containerStatuses": fine}


def _each(images: Images, state: Json, broken: dict[str, Json] | None = None) -> list[Json]:
    """Statuses of the containers; those in ``broken``, by name, have another."""
    every = [(name, image, (broken or {}).get(name, state)) for name, image in images]
    return [{"name": name, "image": image, "imageID": "", **one} for name, image, one in every]


def _container(state: Json, ready: bool = False, started: bool = False, restarts: int = 0) -> Json:
    return {"ready": ready, "restartCount": restarts, "started": started, "state": state}


def _running(restarts: int = 0) -> Json:
    return _container({"running": {"startedAt": now()}}, True, True, restarts)


def _terminated(message: str) -> Json:
    ended = {"exitCode": 1, "reason": "Error", "message": message, "startedAt": now(), "finishedAt": now()}
    return {"terminated": ended}
