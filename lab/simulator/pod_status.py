"""Statuses of pods that kwok does not write: crashing, failed, recovered, started again after a boot."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lab.simulator.objects import Pod

Json = dict[str, Any]
Images = tuple[tuple[str, str], ...]
"""Name and image of each container."""


def timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def conditions(ready: bool, **reason: str) -> Json:
    common = {"status": str(ready), "lastTransitionTime": timestamp(), **reason}
    return {"conditions": [{"type": kind, **common} for kind in ("Ready", "ContainersReady")]}


def crash_loop_status(pod: Pod, container: str, message: str) -> Json:
    """One container is in CrashLoopBackOff; if it is an init container, the others wait."""
    back_off = f"back-off 10s restarting failed container={container}"
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": back_off}}
    crashed = {**_container_state(waiting, restarts=1), "lastState": _terminated_state(message)}
    started = pod.start == "granted" or not pod.operand
    other = _running_state()
    if not started and any(name == container for name, _ in pod.template.init):
        other = _container_state({"waiting": {"reason": "PodInitializing"}})
    done = _container_state({"terminated": {"exitCode": 0, "reason": "Completed"}}, ready=True)
    return {
        "phase": "Running" if started else "Pending",
        **conditions(False, reason="ContainersNotReady"),
        "containerStatuses": _container_statuses(pod.template.containers, other, {container: crashed}),
        "initContainerStatuses": _container_statuses(pod.template.init, done, {container: crashed}),
    }


def failed_status(pod: Pod, message: str) -> Json:
    statuses = _container_statuses(pod.template.containers, _container_state(_terminated_state(message)))
    not_ready = conditions(False, reason="ContainersNotReady")
    return {"phase": "Failed", **not_ready, "containerStatuses": statuses}


def recovered_status(pod: Pod) -> Json:
    statuses = _container_statuses(pod.template.containers, _running_state(restarts=1))
    return {"phase": "Running", **conditions(True), "containerStatuses": statuses}


def _container_statuses(images: Images, state: Json, exceptions: dict[str, Json] | None = None) -> list[Json]:
    """Statuses of the containers; those in ``exceptions``, by name, have another."""
    states = [(name, image, (exceptions or {}).get(name, state)) for name, image in images]
    return [{"name": name, "image": image, "imageID": "", **state} for name, image, state in states]


def _container_state(state: Json, ready: bool = False, started: bool = False, restarts: int = 0) -> Json:
    return {"ready": ready, "restartCount": restarts, "started": started, "state": state}


def _running_state(restarts: int = 0) -> Json:
    return _container_state({"running": {"startedAt": timestamp()}}, True, True, restarts)


def _terminated_state(message: str) -> Json:
    times = {"startedAt": timestamp(), "finishedAt": timestamp()}
    return {"terminated": {"exitCode": 1, "reason": "Error", "message": message, **times}}
