"""The pod that tries a GPU: its manifest, its program, and how the gate handles it."""

from __future__ import annotations

import datetime
import io
import subprocess
import sys
import urllib.error
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from infra.incluster import proof, readiness_gate, trial
from lab.simulator import keys

NOW = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC).timestamp()
RECENT, OLD = "2026-11-21T11:59:50Z", "2026-11-21T11:59:30Z"
NODE: dict[str, Any] = {"metadata": {"name": "n", "uid": "u-1"}, "spec": {}}
PODS = "/api/v1/namespaces/trials/pods"
SETTINGS = {"image": "python:3", "namespace": "trials"}
POOL: dict[str, Any] = {"offers": {"nvidia.com/gpu": 2}, "trial": SETTINGS}
REQUESTS = "a pod that requests nvidia.com/gpu"


class Api:
    """Records what the gate does; ``there`` are the pods on the node."""

    def __init__(self, there: list[dict[str, Any]], refusal: str = "") -> None:
        self.there, self.refusal, self.done = there, refusal, list[str]()

    def on_node(self, path: str, node: str) -> list[dict[str, Any]]:
        assert (path, node) == (PODS, "n")
        return self.there

    def call(self, method: str, path: str, query: dict[str, str], pod: dict[str, Any]) -> None:
        if self.refusal:
            body = io.BytesIO(self.refusal.encode())
            raise urllib.error.HTTPError("https://s", 403, "Forbidden", Message(), body)
        assert (method, path, query) == ("POST", PODS, {})
        self.done.append(f"create {pod['metadata']['name']}")

    def delete(self, path: str, pod: dict[str, Any]) -> None:
        assert path == PODS
        self.done.append(f"delete {pod['metadata']['uid']}")


def there(phase: str, born: str = RECENT, **more: Any) -> dict[str, Any]:
    """The node's trial as the server returns it."""
    made = trial.pod(NODE, "nvidia.com/gpu", SETTINGS)
    made["metadata"] |= {"uid": "u-pod", "creationTimestamp": born, **more.pop("metadata", {})}
    return {**made, "status": {"phase": phase, **more}}


def container(state: dict[str, Any]) -> dict[str, Any]:
    return {"containerStatuses": [{"state": state}]}


ENDED = container({"terminated": {"exitCode": 1, "message": "no device"}})
PULLS = container({"waiting": {"reason": "ErrImagePull", "message": "no such image"}})
OTHER = {"metadata": {"name": "gpuform-trial-of-an-earlier-node", "uid": "u-0"}, "status": {}}
LOOKS: list[tuple[list[dict[str, Any]], dict[str, Any], bool, list[str], list[str]]] = [
    ([], {}, False, [f"create {trial.name(NODE)}"], [f"{REQUESTS} starts"]),
    ([OTHER], {}, False, [f"create {trial.name(NODE)}"], [f"{REQUESTS} starts"]),
    ([there("Pending")], {}, False, [], [f"{REQUESTS} starts"]),
    ([there("Pending", **PULLS)], {}, False, [], [f"{REQUESTS} starts: no such image"]),
    ([there("Running")], {}, False, [], [f"{REQUESTS} starts"]),
    ([there("Succeeded")], {}, False, ["delete u-pod"], []),
    ([there("Failed", **ENDED)], {}, False, [], [f"{REQUESTS} gets no GPU: no device"]),
    ([there("Failed", OLD, **ENDED)], {}, False, ["delete u-pod"], [f"{REQUESTS} gets no GPU: no device"]),
    ([there("Failed", reason="OutOfcpu", message="Pod was rejected")], {}, False, [],
     [f"{REQUESTS} gets no GPU: Pod was rejected"]),
    ([there("Succeeded", metadata={"deletionTimestamp": RECENT})], {}, False, [],
     ["the last pod that tried a GPU is ending"]),
    ([], {}, True, [], []),
    ([there("Running")], {}, True, ["delete u-pod"], []),
    ([there("Succeeded")], {"unschedulable": True}, False, ["delete u-pod"],
     ["it is cordoned, so no pod can try its GPUs"]),
]  # fmt: skip


@pytest.mark.unit
@pytest.mark.parametrize(("pods", "spec", "early", "done", "reasons"), LOOKS)
def test_the_gate_waits_until_a_pod_had_a_gpu_and_leaves_no_pod(
    pods: list[dict[str, Any]], spec: dict[str, Any], early: bool, done: list[str], reasons: list[str]
) -> None:
    api: Any = Api(pods)
    assert readiness_gate.tried(api, {**NODE, "spec": spec}, POOL, early, NOW) == reasons
    assert api.done == done


@pytest.mark.unit
def test_a_refusal_of_the_server_is_on_the_node() -> None:
    api: Any = Api([], '{"message": "pod rejected: RuntimeClass \\"nv\\" not found"}')
    (reason,) = readiness_gate.tried(api, NODE, POOL, False, NOW)
    assert reason == f'{REQUESTS} is refused: pod rejected: RuntimeClass "nv" not found'


@pytest.mark.unit
def test_the_pod_is_like_a_users_and_is_deleted_with_the_node() -> None:
    made = trial.pod(NODE, "nvidia.com/gpu.shared", SETTINGS)
    assert "runtimeClassName" not in made["spec"]
    (only,) = made["spec"]["containers"]
    assert only["resources"]["limits"] == {"nvidia.com/gpu.shared": "1"}
    assert "env" not in only
    assert made["spec"]["nodeName"] == "n"
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Node", "u-1", True)
    assert made["metadata"]["labels"]["app"] == keys.TRIAL
    classed = trial.pod(NODE, "nvidia.com/gpu", {**SETTINGS, "runtime_class": "nvidia"})
    assert classed["spec"]["runtimeClassName"] == "nvidia"


@pytest.mark.unit
def test_another_resource_is_tried_after_one_that_is_exhausted() -> None:
    promised = {"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-2g.10gb": 1, "gpu.nvidia.com": 1}
    found = {trial.resource(promised, proof.RESOURCE, NOW + s) for s in (0, trial.AGAIN_S)}
    assert found == {"nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"}


LIBRARY = "601 590 0:52 /usr/lib64/libcuda.so.580 /usr/lib64/libcuda.so.580 ro,nosuid - ext4 /dev/x ro\n"
ROOT = "590 1 0:50 / / rw - overlay overlay rw\n"
GPU = ("nvidiactl", "nvidia0", "nvidia-uvm")


@pytest.mark.tools
@pytest.mark.parametrize(
    ("nodes", "mounts", "reason"),
    [
        (GPU, ROOT + LIBRARY, ""),
        ((), ROOT, "no device file of a GPU"),
        (("nvidiactl",), ROOT + LIBRARY, "no device file of a GPU"),
        (GPU, ROOT, "no library of the driver"),  # the kubelet's device files, with runc
    ],
)
def test_the_program_needs_device_files_and_the_driver(
    tmp_path: Path, nodes: tuple[str, ...], mounts: str, reason: str
) -> None:
    for name in nodes:
        (tmp_path / name).touch()
    (tmp_path / "mountinfo").write_text(mounts)
    log = tmp_path / "log"
    program = trial.PROGRAM.replace("/dev/termination-log", str(log))
    program = program.replace("/dev/", f"{tmp_path}/").replace(
        "/proc/self/mountinfo", f"{tmp_path}/mountinfo"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=20)
    assert done.returncode == bool(reason)
    assert (log.read_text() if log.exists() else "").startswith(reason)
