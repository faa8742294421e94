"""Ids of the devices of a simulated node, as its device manager makes them: by the node's uid."""

from __future__ import annotations

import uuid

_NAMESPACE = uuid.UUID("5b0f3a52-2f1e-4b7c-9a53-0c1d6c1f7f10")


def gpu_id(node: str, index: int) -> str:
    return f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{index}')}"


def mig_id(node: str, index: int, profile: str, start: int) -> str:
    """``start`` is the memory slice at which the instance begins."""
    return f"MIG-{uuid.uuid5(_NAMESPACE, f'{node}/{index}/{profile}/{start}')}"


def original(device: str) -> str:
    """Id of the device behind a replica; any other id is returned unchanged."""
    return device.partition("::")[0]
