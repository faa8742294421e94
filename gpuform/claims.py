"""Devices that pods have by claim (Dynamic Resource Allocation), as the API server knows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SLICES = "resourceslices.resource.k8s.io"
CLAIMS = "resourceclaims.resource.k8s.io"

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Claims:
    """``devices``: how many a node has, by driver; ``asked``: how many a claim asks for, by device class.

    NVIDIA's driver and its class of whole GPUs have one name. Nodes are found by their name, claims by
    namespace and name.
    """

    devices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    asked: Mapping[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)

    def of_pod(self, pod: Object) -> dict[str, int]:
        """Devices that a pod's claims ask for; none before its claims have been made."""
        found: Counter[str] = Counter()
        for status in pod.get("status", {}).get("resourceClaimStatuses") or ():
            name = status.get("resourceClaimName", "")
            found.update(self.asked.get((pod["metadata"]["namespace"], name), {}))
        return dict(found)


def gather(slices: Iterable[Object], claims: Iterable[Object]) -> Claims:
    """Count live ResourceSlices and ResourceClaims."""
    asked = {
        (claim["metadata"]["namespace"], claim["metadata"]["name"]): _asked(claim["spec"]) for claim in claims
    }
    return Claims(devices=_devices([one["spec"] for one in slices]), asked=asked)


def _devices(specs: list[Object]) -> dict[str, dict[str, int]]:
    """Whole GPUs by node and driver; slices of an older generation are only not yet taken away."""
    newest: dict[tuple[str, str], int] = {}
    for spec in specs:
        pool = (spec["driver"], spec["pool"]["name"])
        newest[pool] = max(newest.get(pool, 0), spec["pool"]["generation"])
    found: dict[str, dict[str, int]] = {}
    for spec in specs:
        node, driver = spec.get("nodeName"), spec["driver"]
        if node and spec["pool"]["generation"] == newest[driver, spec["pool"]["name"]]:
            here = found.setdefault(node, {})
            whole = [device for device in spec.get("devices") or () if _type(device) == "gpu"]
            here[driver] = here.get(driver, 0) + len(whole)
    return found


def _type(device: Object) -> str:
    return str(device.get("attributes", {}).get("type", {}).get("string", "gpu"))


def _asked(spec: Object) -> dict[str, int]:
    found: Counter[str] = Counter()
    for request in spec.get("devices", {}).get("requests") or ():
        exactly = request.get("exactly") or {}
        if "deviceClassName" in exactly:
            found[exactly["deviceClassName"]] += exactly.get("count", 1)
    return dict(found)
