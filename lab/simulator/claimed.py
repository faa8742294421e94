"""DRA objects of the API server: published ResourceSlices and allocated ResourceClaims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lab.simulator import keys

Json = Mapping[str, Any]
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
DRA_SLICES = {"fieldSelector": f"spec.driver={keys.DRA_DRIVER}"}


@dataclass(frozen=True, slots=True)
class Slice:
    """A ResourceSlice of NVIDIA's DRA driver; ``digest`` hashes the devices that it meant to publish."""

    name: str
    node: str
    version: int
    generation: int
    digest: str


@dataclass(frozen=True, slots=True)
class Claim:
    """An allocated ResourceClaim: its node, its devices, and its pods as ``namespace/name``."""

    namespace: str
    name: str
    node: str
    devices: tuple[str, ...]
    pods: tuple[str, ...]

    @property
    def gpus(self) -> frozenset[int]:
        """Indexes of the GPUs behind the devices: the number in ``gpu-0`` and ``gpu-0-mig-...``."""
        return frozenset(int(device.split("-")[1]) for device in self.devices)


def slice_of(raw: Json) -> Slice:
    meta, spec = raw["metadata"], raw["spec"]
    digest = (meta.get("annotations") or {}).get(keys.PUBLISHED, "")
    generation = spec["pool"]["generation"]
    return Slice(meta["name"], spec.get("nodeName", ""), int(meta["resourceVersion"]), generation, digest)


def claim_of(raw: Json) -> Claim | None:
    """None if the claim has no device of NVIDIA's driver."""
    meta, status = raw["metadata"], raw.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    ours = [one for one in results if one["driver"] == keys.DRA_DRIVER]
    if not ours:
        return None
    pods = tuple(f"{meta['namespace']}/{one['name']}" for one in status.get("reservedFor") or ())
    devices = tuple(one["device"] for one in ours)
    return Claim(meta["namespace"], meta["name"], ours[0]["pool"], devices, pods)


class Claimed:
    """Slices by node and claims by node, kept up to date by the store's watches."""

    def __init__(self, changed: Callable[[Iterable[str]], None]) -> None:
        self._changed = changed
        self.slices: dict[str, Slice] = {}
        self._claims: dict[tuple[str, str], Claim] = {}
        self._on_node: dict[str, dict[tuple[str, str], Claim]] = {}

    def on(self, node: str) -> tuple[Claim, ...]:
        return tuple(self._on_node.get(node, {}).values())

    def put_slice(self, raw: Json, listed: bool = False, gone: bool = False) -> None:
        """Ignore a slice older than the known one, unless it was ``listed``."""
        if gone:
            nodes = [node for node, one in self.slices.items() if one.name == raw["metadata"]["name"]]
            for node in nodes:
                del self.slices[node]
            self._changed(nodes)  # its driver publishes the slice again
            return
        found = slice_of(raw)
        old = self.slices.get(found.node)
        if listed or old is None or old.name != found.name or old.version < found.version:
            self.slices[found.node] = found
            self._changed((found.node,))

    def put_claim(self, raw: Json, _: bool = False, gone: bool = False) -> None:
        """A claim without devices of NVIDIA's driver counts as deleted."""
        key = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        found, old = None if gone else claim_of(raw), self._claims.pop(key, None)
        if found:
            self._claims[key] = found
        if found == old:
            return
        if old:
            self._on_node[old.node].pop(key, None)
        if found:
            self._on_node.setdefault(found.node, {})[key] = found
        self._changed([claim.node for claim in (old, found) if claim])
