"""GPU nodes without the simulator: kwok plays their kubelet, and their status is written by hand."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from lab.plane import sidecars
from lab.plane.layout import Layout
from tests.conftest import Plane
from tests.waiting import until

Manifest = dict[str, Any]


def node(pool: str, index: int, gpus: dict[str, str]) -> Manifest:
    name = f"{pool}-{index}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"gpuform.io/pool": pool, "kubernetes.io/hostname": name},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "64", "memory": "480Gi", "pods": "110", **gpus}},
    }


@contextmanager
def nodes(plane: Plane, pool: str, count: int, gpus: dict[str, str]) -> Iterator[None]:
    made = [node(pool, index, gpus) for index in range(count)]
    apply(plane, made)
    try:
        # Becoming Ready writes the status, so the rest of it comes after.
        plane.kubectl(
            "wait", "node", "-l", f"gpuform.io/pool={pool}", "--for=condition=Ready", "--timeout=60s"
        )
        for one in made:
            status = json.dumps({"status": one["status"] | {"capacity": one["status"]["allocatable"]}})
            plane.kubectl(
                "patch", "node", one["metadata"]["name"], "--subresource=status", "--type=merge", "-p", status
            )
        yield
    finally:
        delete(plane, made)


def apply(plane: Plane, manifests: Iterable[Manifest]) -> None:
    """Apply them, with strict validation."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
    plane.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", input=text)


def delete(plane: Plane, manifests: Iterable[Manifest]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)[::-1]})
    plane.kubectl("delete", "--ignore-not-found", "--wait=true", "-f", "-", input=text)


def pods(plane: Plane, namespace: str) -> list[Manifest]:
    found: list[Manifest] = json.loads(plane.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
    return found


def placed(plane: Plane, namespace: str, wanted: int, seconds: float = 40) -> Counter[str]:
    """Pods by node, once that many are bound; AssertionError if they are not in time."""

    def found() -> Counter[str]:
        return Counter(
            pod["spec"]["nodeName"] for pod in pods(plane, namespace) if pod["spec"].get("nodeName")
        )

    return until(found, lambda by_node: by_node.total() >= wanted, seconds)


def keeper(plane: Plane) -> None:
    """Run the second scheduler's keeper, on a control plane that was started without its other members.

    It ends with the control plane.
    """
    sidecars.ensure_scheduler(Layout(plane.paths), plane.toolchain)
