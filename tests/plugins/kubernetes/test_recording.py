"""The stand-in against the official provider, call by call.

``shared/reference/kubernetes-provider`` holds what pulumi-resource-kubernetes 4.29.0 answered to the engine
for one program against Kubernetes 1.36.1. Its requests are sent here in the same order to the stand-in, on
Kubernetes 1.34.4; as the engine would, the test sends back the state that the stand-in itself returned. Every
difference that is let pass is named below.
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]
FILES = (
    "1-create.jsonl",
    "2-noop-preview.jsonl",
    "3-change-preview.jsonl",
    "4-change-up.jsonl",
    "5-refresh.jsonl",
    "7-destroy.jsonl",
)
COMPARED = ("CheckConfig", "DiffConfig", "Configure", "Check", "Diff", "Create", "Read", "Update", "Delete")

# What the server makes up anew for every object: only its presence is compared.
GENERATED = re.compile(
    r"""
    ^__fieldManager$  # ours follows from the URN, the official one is random
    | ^metadata\.(uid|resourceVersion|creationTimestamp)$
    | \bcontroller-uid("\])?$  # a Job's labels and selector
    """,
    re.VERBOSE,
)
# What one of the two has and the other lacks, or what differs, and why that is right.
TOLERATED = {
    # The official provider creates by POST under "pulumi-kubernetes" and applies later; the stand-in
    # applies from the start, so that a killed create is recognised. Who manages which field therefore reads
    # differently.
    r"^metadata\.managedFields": "field managers",
    # How far the controllers have come is a matter of milliseconds; the wait's result is compared by
    # readiness.
    r"^status\.": "controllers' progress",
    r"^metadata\.annotations\[\"deployment.kubernetes.io/revision\"\]$": "deployment controller",
    r"^metadata\.annotations\[\"deprecated.daemonset.template.generation\"\]$": "DaemonSet controller",
    # One generation more or less: the official provider's second write may add fields of its own.
    r"^metadata\.generation$": "counts writes",
}


@pytest.fixture
def gpu_nodes(control_plane: Any) -> Iterator[None]:
    """Two nodes with four GPUs each, and something that admits pods to them, as a device manager would."""
    names = ("recorded-0", "recorded-1")
    for name in names:
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        }
        control_plane.kubectl("apply", "-f", "-", input=json.dumps(node))
        control_plane.kubectl("wait", "--for=condition=Ready", f"node/{name}", "--timeout=30s")
        patch = {"status": {s: {"nvidia.com/gpu": "4"} for s in ("capacity", "allocatable")}}
        control_plane.kubectl("patch", "node", name, "--subresource=status", "-p", json.dumps(patch))
    ended = threading.Event()
    admitting = threading.Thread(target=_admit, args=(control_plane, ended))
    admitting.start()
    yield
    ended.set()
    admitting.join()
    for name in names:
        control_plane.kubectl("delete", "node", name)


def _admit(control_plane: Any, ended: threading.Event) -> None:
    while not ended.wait(0.3):
        pods = control_plane.kubectl(
            *("get", "pods", "-A", "-o", "json", "--field-selector=status.phase=Pending")
        )
        for pod in json.loads(pods)["items"]:
            limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
            if "nvidia.com/gpu" in limits and pod["spec"].get("nodeName"):
                control_plane.kubectl(
                    *("annotate", "pod", pod["metadata"]["name"], "-n", pod["metadata"]["namespace"]),
                    *("simulator.gpuform.io/devices=gpu-0", "--overwrite"),
                )


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every scalar and every empty container of a message, by its path."""
    if isinstance(value, dict) and value:
        found: dict[str, Any] = {}
        for key, item in value.items():
            step = f'["{key}"]' if "." in key else f".{key}" if path else key
            found |= leaves(item, path + step)
        return found
    if isinstance(value, list) and value:
        return {k: v for i, item in enumerate(value) for k, v in leaves(item, f"{path}[{i}]").items()}
    return {path: value}


def differences(official: Any, ours: Any) -> list[str]:
    """What differs between two states, but for what the tables above let pass."""
    # An apply that is only tried out answers with an empty status, a create that is tried out with none.
    left, right = (
        {path: value for path, value in leaves(state).items() if (path, value) != ("status", {})}
        for state in (official, ours)
    )
    found = []
    for path in sorted({*left, *right}):
        if any(re.search(pattern, path) for pattern in TOLERATED):
            continue
        if path not in right:
            found.append(f"{path}: the official provider has {left[path]!r}, the stand-in has nothing")
        elif path not in left:
            found.append(f"{path}: the stand-in has {right[path]!r}, the official provider has nothing")
        elif left[path] != right[path] and not GENERATED.search(path):
            found.append(f"{path}: {left[path]!r} became {right[path]!r}")
    return found


class Replay:
    """Sends the recorded requests and keeps the stand-in's own state per object, as the engine does."""

    def __init__(self, provider: Callable[[str, Any], Any], kubeconfig: Path) -> None:
        self.provider = provider
        self.kubeconfig = kubeconfig
        self.states: dict[tuple[str, str], Any] = {}
        self.compared = 0

    def request(self, method: str, recorded: dict[str, Any]) -> dict[str, Any]:
        request = copy.deepcopy(recorded)
        for key in ("resourceStatusAddress", "resourceStatusToken"):
            request.pop(key, None)
        if method == "Configure":
            request["args"]["kubeconfig"] = str(self.kubeconfig)
        state = self.states.get((request.get("urn", ""), request.get("id", "")))
        for key in ("olds", "properties"):
            if state and key in request and method in ("Diff", "Update", "Read", "Delete"):
                request[key] = state
        return request

    def play(self, method: str, call: dict[str, Any]) -> list[str]:
        """Send one call; returns what differs."""
        request = self.request(method, call["request"])
        answer = self.provider(method, request)
        official = call["response"]
        self.compared += 1
        if method in ("Create", "Update", "Read") and not request.get("preview"):
            id = answer.get("id") or request["id"]
            self.states[request["urn"], id] = answer["properties"]
        return compare(method, request, official, answer)


def compare(method: str, request: dict[str, Any], official: Any, ours: Any) -> list[str]:
    if method == "Check":
        official, ours = _without_suffix(request, official), _without_suffix(request, ours)
    if method in ("Create", "Update", "Read"):
        found = differences(official.get("properties", {}), ours.get("properties", {}))
        rest = ("id", "inputs")
        return found + [
            f"{key}: {official.get(key)!r} became {ours.get(key)!r}"
            for key in rest
            if official.get(key) != ours.get(key)
        ]
    return [] if official == ours else [f"answer: {official!r} became {ours!r}"]


def _without_suffix(request: dict[str, Any], answer: Any) -> Any:
    """Eight random hex digits are compared as such: the official provider draws them in its own way."""
    made_up = not request["news"].get("metadata", {}).get("name") and not request["olds"]
    if not made_up:
        return answer
    answer = copy.deepcopy(answer)
    metadata = answer["inputs"]["metadata"]
    metadata["name"] = re.sub(rf"^{request['name']}-[0-9a-f]{{8}}$", "autonamed", metadata["name"])
    return answer


def test_every_recorded_call_gets_the_official_answer(
    reference: Path, start_provider: Any, control_plane: Any, gpu_nodes: None
) -> None:
    crds = reference / "crds" / "karpenter"
    control_plane.kubectl("apply", "--server-side", "-f", str(crds))
    control_plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    replay = Replay(start_provider(), control_plane.kubeconfig)
    found: list[str] = []
    for file in FILES:
        for number, line in enumerate((reference / "kubernetes-provider" / file).read_text().splitlines(), 1):
            call = json.loads(line)
            method = call["method"].rpartition("/")[2]
            if method == "Cancel":  # ends one run of the engine, and with it one provider process
                replay.provider = start_provider()
            if method not in COMPARED or "response" not in call:
                continue
            name = call["request"]["urn"].rpartition("::")[2]
            differs = replay.play(method, call)
            found += [f"{file}:{number} {method} {name}: {text}" for text in differs]
    assert replay.compared > 250
    assert "\n".join(found) == ""
