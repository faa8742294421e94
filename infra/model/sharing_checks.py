"""Checks of sharing: what the GPU supports, and isolation of owners who do not trust each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from infra.model.errors import InputError
from infra.model.gpu import Gpu
from infra.model.sharing import Dra, Exclusive, Mig, Mps, Sharing, TimeSlicing

Trust = Literal["single", "multi"]

_ISOLATED = "use exclusive, mig without share, or trust: single"


def check_sharing(gpus: Sequence[Gpu], sharing: Sharing, trust: Trust) -> None:
    """Refuse what these GPUs do not support, or what would let one owner's pods harm another's.

    Error paths are relative to the pool.
    """
    if isinstance(sharing, Mps):
        for gpu in gpus:
            if not gpu.mps_capable:
                fact = (
                    f"{gpu.name} has compute capability {gpu.compute[0]}.{gpu.compute[1]}, and MPS needs 7.0"
                )
                raise InputError("sharing.kind", f"{fact} to limit each client's memory", "use time_slicing")
            if sharing.replicas > gpu.mps_clients:
                fact = f"NVIDIA's MPS daemon takes {gpu.mps_clients} clients on {gpu.name}"
                raise InputError("sharing.replicas", fact, f"use {gpu.mps_clients} or less, or time_slicing")
    if trust == "multi":
        if not gpus:
            raise InputError("trust", "the pool has no GPU to share", "leave it out")
        _check_trust(sharing)


def _check_trust(sharing: Sharing) -> None:
    """MIG slices have their own memory, caches and fault isolation; shares of one GPU or slice do not.

    Sources: NVIDIA's pages on time-slicing (no memory or fault isolation between replicas) and on MPS (a
    client's fatal fault ends every other client of the GPU, and all must be one user's).
    """
    if isinstance(sharing, TimeSlicing):
        fact = "pods that take turns on a GPU share its memory and its faults"
        raise InputError("sharing.kind", f"{fact}, and trust is multi", _ISOLATED)
    if isinstance(sharing, Mps):
        fact = "a client's fatal fault ends all other clients of its GPU, so MPS serves one owner"
        raise InputError("sharing.kind", f"{fact}, and trust is multi", _ISOLATED)
    if isinstance(sharing, Mig) and sharing.share:
        fact = "pods that take turns on a slice share its memory and its faults"
        raise InputError("sharing.share", f"{fact}, and trust is multi", "leave it out, or use trust: single")
    assert isinstance(sharing, Exclusive | Mig | Dra)
