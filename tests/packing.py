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


def node(pool: str, index: int) -> Manifest:
    name = f"{pool}-{index}"
    labels = {"gpuform.io/pool": pool, "kubernetes.io/hostname": name}
    meta = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": [taint]}}


@contextmanager
def nodes(plane: Plane, pool: str, count: int, gpus: dict[str, str]) -> Iterator[None]:
    made = [node(pool, index) for index in range(count)]
    size = {"cpu": "64", "memory": "480Gi", "pods": "110", **gpus}
    status = json.dumps({"status": {"allocatable": size, "capacity": size}})
    apply(plane, made)
    try:
        # Becoming Ready writes the status, so the rest of it comes after.
        ready = ("--for=condition=Ready", "--timeout=60s")
        plane.kubectl("wait", "node", "-l", f"gpuform.io/pool={pool}", *ready)
        names = [item["metadata"]["name"] for item in made]
        plane.kubectl("patch", "node", *names, "--subresource=status", "--type=merge", "-p", status)
        yield
    finally:
        delete(plane, made)


def _listed(manifests: Iterable[Manifest]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})


def apply(plane: Plane, manifests: Iterable[Manifest]) -> None:
    """Apply them, with strict validation."""
    plane.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", input=_listed(manifests))


def delete(plane: Plane, manifests: Iterable[Manifest]) -> None:
    listed = _listed(list(manifests)[::-1])
    plane.kubectl("delete", "--ignore-not-found", "--wait=true", "-f", "-", input=listed)


def pods(plane: Plane, namespace: str) -> list[Manifest]:
    found: list[Manifest] = json.loads(plane.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
    return found


def placed(plane: Plane, namespace: str, wanted: int, seconds: float = 40) -> Counter[str]:
    """Pods by node, once that many are bound; AssertionError if they are not in time."""

    def found() -> Counter[str]:
        nodes = (pod["spec"].get("nodeName") for pod in pods(plane, namespace))
        return Counter(node for node in nodes if node)

    return until(found, lambda by_node: by_node.total() >= wanted, seconds)


def keeper(plane: Plane) -> None:
    """Run the second scheduler's keeper, on a control plane that was started without its other members.

    It ends with the control plane.
    """
    sidecars.ensure_scheduler(Layout(plane.paths), plane.toolchain)
