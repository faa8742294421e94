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


def parse_slice(raw: Json) -> Slice:
    meta, spec = raw["metadata"], raw["spec"]
    digest = (meta.get("annotations") or {}).get(keys.PUBLISHED, "")
    generation = spec["pool"]["generation"]
    return Slice(meta["name"], spec.get("nodeName", ""), int(meta["resourceVersion"]), generation, digest)


def parse_claim(raw: Json) -> Claim | None:
    """None if the claim has no device of NVIDIA's driver."""
    meta, status = raw["metadata"], raw.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    results = [result for result in results if result["driver"] == keys.DRA_DRIVER]
    if not results:
        return None
    pods = tuple(f"{meta['namespace']}/{pod['name']}" for pod in status.get("reservedFor") or ())
    devices = tuple(result["device"] for result in results)
    return Claim(meta["namespace"], meta["name"], results[0]["pool"], devices, pods)


class ClaimStore:
    """Slices by node and claims by node, kept up to date by the store's watches."""

    def __init__(self, changed: Callable[[Iterable[str]], None]) -> None:
        self._changed = changed
        self.slices: dict[str, Slice] = {}
        self._claims: dict[tuple[str, str], Claim] = {}
        self._on_node: dict[str, dict[tuple[str, str], Claim]] = {}

    def claims_on(self, node: str) -> tuple[Claim, ...]:
        return tuple(self._on_node.get(node, {}).values())

    def put_slice(self, raw: Json, listed: bool = False, gone: bool = False) -> None:
        """Ignore a slice older than the known one, unless it was ``listed``."""
        if gone:
            nodes = [node for node, item in self.slices.items() if item.name == raw["metadata"]["name"]]
            for node in nodes:
                del self.slices[node]
            self._changed(nodes)  # its driver publishes the slice again
            return
        new = parse_slice(raw)
        old = self.slices.get(new.node)
        if listed or old is None or old.name != new.name or old.version < new.version:
            self.slices[new.node] = new
            self._changed((new.node,))

    def put_claim(self, raw: Json, _: bool = False, gone: bool = False) -> None:
        """A claim without devices of NVIDIA's driver counts as deleted."""
        key = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        new, old = None if gone else parse_claim(raw), self._claims.pop(key, None)
        if new:
            self._claims[key] = new
        if new == old:
            return
        if old:
            self._on_node[old.node].pop(key, None)
        if new:
            self._on_node.setdefault(new.node, {})[key] = new
        self._changed([claim.node for claim in (old, new) if claim])
