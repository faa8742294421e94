"""Devices that pods get by claim (Dynamic Resource Allocation), as the API server reports them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.model import labels

SLICES = "resourceslices.resource.k8s.io"
CLAIMS = "resourceclaims.resource.k8s.io"
SLICES_PATH = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS_PATH = "/apis/resource.k8s.io/v1/resourceclaims"

_CLASSES: Mapping[str, str] = {"gpu": labels.GPU_DEVICE_CLASS, "mig": labels.MIG_DEVICE_CLASS}
"""Device class by type of NVIDIA device; the DRA driver has the name of the first class."""

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Claims:
    """``devices`` counts what a node has, ``asked`` what a claim requests, both by device class.

    Nodes are keyed by name, claims by (namespace, name). Not counted: devices of other drivers than NVIDIA's,
    and devices with a taint that prevents allocation.
    """

    devices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    asked: Mapping[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)
    given: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """UUIDs of the devices allocated to a claim."""

    def given_to(self, pod: Object) -> tuple[str, ...]:
        """UUIDs of the devices allocated to a pod's claims."""
        return tuple(one for key in _claims_of(pod) for one in self.given.get(key, ()))

    def of_pod(self, pod: Object) -> dict[str, int]:
        """Devices that a pod's claims request; empty until the claims have been created."""
        found: Counter[str] = Counter()
        for key in _claims_of(pod):
            found.update(self.asked.get(key, {}))
        return dict(found)


def _claims_of(pod: Object) -> Iterable[tuple[str, str]]:
    for status in pod.get("status", {}).get("resourceClaimStatuses") or ():
        yield pod["metadata"]["namespace"], status.get("resourceClaimName", "")


def gather(slices: Iterable[Object], claims: Iterable[Object]) -> Claims:
    specs = _newest([one["spec"] for one in slices])
    uuids = {
        (spec["pool"]["name"], one["name"]): _text(one, "uuid") for spec in specs for one in _listed(spec)
    }
    asked: dict[tuple[str, str], dict[str, int]] = {}
    given: dict[tuple[str, str], tuple[str, ...]] = {}
    for claim in claims:
        key = (claim["metadata"]["namespace"], claim["metadata"]["name"])
        asked[key] = _asked(claim["spec"])
        results = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get(
            "results"
        ) or ()
        given[key] = tuple(uuids.get((one["pool"], one["device"]), one["device"]) for one in results)
    return Claims(devices=_devices(specs), asked=asked, given=given)


def _newest(specs: list[Object]) -> list[Object]:
    """NVIDIA's slices of the newest generation; older ones are only waiting to be removed."""
    specs = [spec for spec in specs if spec["driver"] == labels.GPU_DEVICE_CLASS]
    newest: dict[str, int] = {}
    for spec in specs:
        pool = spec["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), pool["generation"])
    return [spec for spec in specs if spec["pool"]["generation"] == newest[spec["pool"]["name"]]]


def _devices(specs: list[Object]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for spec in specs:
        if node := spec.get("nodeName"):
            here = found.setdefault(node, {})
            for device in _listed(spec):
                name = _CLASSES.get(_text(device, "type"))
                if name and not _kept_back(device):
                    here[name] = here.get(name, 0) + 1
    return found


def _listed(spec: Object) -> Iterable[Object]:
    devices: Iterable[Object] = spec.get("devices") or ()
    return devices


def _text(device: Object, name: str) -> str:
    return str(device.get("attributes", {}).get(name, {}).get("string", ""))


def _kept_back(device: Object) -> bool:
    return any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in device.get("taints") or ())


def _asked(spec: Object) -> dict[str, int]:
    found: Counter[str] = Counter()
    for request in spec.get("devices", {}).get("requests") or ():
        exactly = request.get("exactly") or {}
        if "deviceClassName" in exactly:
            found[exactly["deviceClassName"]] += exactly.get("count", 1)
    return dict(found)
