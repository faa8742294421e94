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


class FakeApi:
    """Records what the gate does; ``pods`` are the pods on the node."""

    def __init__(self, pods: list[dict[str, Any]], refusal: str = "") -> None:
        self.pods, self.refusal, self.requests = pods, refusal, list[str]()

    def on_node(self, path: str, node: str) -> list[dict[str, Any]]:
        assert (path, node) == (PODS, "n")
        return self.pods

    def request(self, method: str, path: str, query: dict[str, str], pod: dict[str, Any]) -> None:
        if self.refusal:
            body = io.BytesIO(self.refusal.encode())
            raise urllib.error.HTTPError("https://s", 403, "Forbidden", Message(), body)
        assert (method, path, query) == ("POST", PODS, {})
        self.requests.append(f"create {pod['metadata']['name']}")

    def delete(self, path: str, pod: dict[str, Any]) -> None:
        assert path == PODS
        self.requests.append(f"delete {pod['metadata']['uid']}")


def trial_pod(phase: str, created: str = RECENT, **more: Any) -> dict[str, Any]:
    """The node's trial as the server returns it."""
    pod = trial.render_pod(NODE, "nvidia.com/gpu", SETTINGS)
    pod["metadata"] |= {"uid": "u-pod", "creationTimestamp": created, **more.pop("metadata", {})}
    return {**pod, "status": {"phase": phase, **more}}


def container(state: dict[str, Any]) -> dict[str, Any]:
    return {"containerStatuses": [{"state": state}]}


ENDED = container({"terminated": {"exitCode": 1, "message": "no device"}})
PULLS = container({"waiting": {"reason": "ErrImagePull", "message": "no such image"}})
OTHER = {"metadata": {"name": "gpuform-trial-of-an-earlier-node", "uid": "u-0"}, "status": {}}
CASES: list[tuple[list[dict[str, Any]], dict[str, Any], bool, list[str], list[str]]] = [
    ([], {}, False, [f"create {trial.pod_name(NODE)}"], [f"{REQUESTS} starts"]),
    ([OTHER], {}, False, [f"create {trial.pod_name(NODE)}"], [f"{REQUESTS} starts"]),
    ([trial_pod("Pending")], {}, False, [], [f"{REQUESTS} starts"]),
    ([trial_pod("Pending", **PULLS)], {}, False, [], [f"{REQUESTS} starts: no such image"]),
    ([trial_pod("Running")], {}, False, [], [f"{REQUESTS} starts"]),
    ([trial_pod("Succeeded")], {}, False, ["delete u-pod"], []),
    ([trial_pod("Failed", **ENDED)], {}, False, [], [f"{REQUESTS} gets no GPU: no device"]),
    ([trial_pod("Failed", OLD, **ENDED)], {}, False, ["delete u-pod"],
     [f"{REQUESTS} gets no GPU: no device"]),
    ([trial_pod("Failed", reason="OutOfcpu", message="Pod was rejected")], {}, False, [],
     [f"{REQUESTS} gets no GPU: Pod was rejected"]),
    ([trial_pod("Succeeded", metadata={"deletionTimestamp": RECENT})], {}, False, [],
     ["the last pod that tried a GPU is ending"]),
    ([], {}, True, [], []),
    ([trial_pod("Running")], {}, True, ["delete u-pod"], []),
    ([trial_pod("Succeeded")], {"unschedulable": True}, False, ["delete u-pod"],
     ["it is cordoned, so no pod can try its GPUs"]),
]  # fmt: skip


@pytest.mark.unit
@pytest.mark.parametrize(("pods", "spec", "incomplete", "requests", "reasons"), CASES)
def test_the_gate_waits_until_a_pod_had_a_gpu_and_leaves_no_pod(
    pods: list[dict[str, Any]],
    spec: dict[str, Any],
    incomplete: bool,
    requests: list[str],
    reasons: list[str],
) -> None:
    api: Any = FakeApi(pods)
    assert readiness_gate.try_gpu(api, {**NODE, "spec": spec}, POOL, incomplete, NOW) == reasons
    assert api.requests == requests


@pytest.mark.unit
def test_trial_pod_that_is_refused_is_the_nodes_reason() -> None:
    api: Any = FakeApi([], '{"message": "pod rejected: RuntimeClass \\"nv\\" not found"}')
    (reason,) = readiness_gate.try_gpu(api, NODE, POOL, False, NOW)
    assert reason == f'{REQUESTS} is refused: pod rejected: RuntimeClass "nv" not found'


@pytest.mark.unit
def test_the_pod_is_like_a_users_and_is_deleted_with_the_node() -> None:
    pod = trial.render_pod(NODE, "nvidia.com/gpu.shared", SETTINGS)
    assert "runtimeClassName" not in pod["spec"]
    (container_,) = pod["spec"]["containers"]
    assert container_["resources"]["limits"] == {"nvidia.com/gpu.shared": "1"}
    assert "env" not in container_
    assert pod["spec"]["nodeName"] == "n"
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Node", "u-1", True)
    assert pod["metadata"]["labels"]["app"] == keys.TRIAL
    classed = trial.render_pod(NODE, "nvidia.com/gpu", {**SETTINGS, "runtime_class": "nvidia"})
    assert classed["spec"]["runtimeClassName"] == "nvidia"


@pytest.mark.unit
def test_another_resource_is_tried_after_one_that_is_exhausted() -> None:
    promised = {"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-2g.10gb": 1, "gpu.nvidia.com": 1}
    resources = {trial.choose_resource(promised, proof.RESOURCE, NOW + s) for s in (0, trial.RETRY_S)}
    assert resources == {"nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"}


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
