"""How a pool's GPUs are shared; declared once per pool, and everything else follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from infra.model.base.errors import InputError
from infra.model.base.fields import Count, Flag, LabelValue, Model, each_once, option, required
from infra.model.gpu.models import Gpu

MigStrategy = Literal["none", "single", "mixed"]


def _check_replicas(value: Any, remedy: str = "use 2 or more, or sharing: {kind: exclusive}") -> Any:
    if value == 1 and not isinstance(value, bool):
        raise InputError("", "1 shares nothing", remedy)
    return value


_MAX_SHARES = 2048
"""Ours: more than any machine runs pods (1514 of EC2's g7.24xlarge). The device plugin lists each share."""
Replicas = Annotated[int, Field(strict=True, ge=2, le=_MAX_SHARES), BeforeValidator(_check_replicas)]


class Exclusive(Model):
    """One pod per GPU."""

    kind: Literal["exclusive"] = "exclusive"


class TimeSlicing(Model):
    """Several pods take turns on each GPU; nothing keeps one from taking all the memory."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "layout": ("time-slicing shares whole GPUs", "leave it out, or use kind: mig without replicas")
    }

    kind: Literal["time_slicing"]
    replicas: Replicas = required("Pods that share one GPU, 2 or more.")
    rename: Flag = option(
        "Offer nvidia.com/gpu.shared, so that no pod gets a share by requesting a whole GPU.", True
    )
    fail_requests_greater_than_one: Flag = option(
        "Refuse pods that request 2 shares: they would get no more than with 1.", True
    )


class Mps(Model):
    """Several processes run on each GPU at the same time, each with an equal part of its memory."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "layout": (
            "MPS and MIG exclude each other, the device plugin shares only whole GPUs by MPS",
            "leave it out, or use kind: mig without replicas",
        )
    }

    kind: Literal["mps"]
    replicas: Annotated[int, Field(strict=True, ge=2, le=48), BeforeValidator(_check_replicas)] = required(
        "Pods that share one GPU, 2 to 48, of a V100 2 to 16 (its MPS server takes no more)."
    )


class SliceShare(Model):
    """Several pods take turns on each MIG slice; no pod can access another slice's memory."""

    replicas: Annotated[
        int,
        Field(strict=True, ge=2, le=_MAX_SHARES),
        BeforeValidator(partial(_check_replicas, remedy="use 2 or more, or leave share out")),
    ] = required("Pods that share one slice, 2 or more.")
    rename: Flag = option(
        "Offer nvidia.com/mig-1g.5gb.shared, so that no pod gets a share by requesting a slice.", True
    )
    fail_requests_greater_than_one: Flag = option(
        "Refuse pods that request 2 shares: they would get no more than with 1.", True
    )


Indices = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=0, le=31)], ...],
    Field(min_length=1),
    each_once("name each GPU once", "GPU "),
]


class DeviceLayout(Model):
    """Layout of some GPUs of a node."""

    devices: Indices = required("Numbers of these GPUs of a node, from 0.")
    layout: dict[str, Count] | str = required(
        "Slices of each of them as {profile: number}, or all-PROFILE for as many as one GPU holds.",
        union_mode="left_to_right",
    )


class Mig(Model):
    """All or some GPUs of a node are cut into MIG slices with their own memory and compute."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "mps": (
            "MPS and MIG exclude each other, the device plugin shares only whole GPUs by MPS",
            "leave it out, or use kind: mps with replicas instead of layout",
        ),
        "replicas": (
            "a slice goes to one pod, unless it is shared by time as well",
            "write share: {replicas: N}, or use kind: time_slicing without layout",
        ),
    }

    kind: Literal["mig"]
    layout: dict[str, Count] | str | None = option(
        "Slices of each GPU as {profile: number}, or all-PROFILE for as many as one GPU holds; this or "
        "layouts.",
        union_mode="left_to_right",
    )
    layouts: tuple[DeviceLayout, ...] | None = option(
        "Instead of layout and devices, if GPUs of a node are cut differently: [{devices: [0, 1], layout: "
        "{...}}, ...]; GPUs that no entry names stay whole.",
        min_length=2,
    )
    name: Annotated[LabelValue, Field(min_length=1)] | None = option(
        "Name of the MIG manager's configuration; derived from the layout if left out."
    )
    devices: Indices | None = option(
        "Numbers of a node's partitioned GPUs, from 0; the others stay whole. All if left out."
    )
    share: SliceShare | None = option("Time-slicing of each slice.")
    strategy: Literal["single", "mixed"] | None = option(
        "How its slices are offered; gpu_operator.mig_strategy if left out."
    )

    @model_validator(mode="after")
    def _check_layouts(self) -> Mig:
        if self.layouts is None:
            if self.layout is None:
                raise InputError("layout", "missing", "give {profile: number}, or all-PROFILE")
            return self
        for key in ("layout", "devices"):
            if getattr(self, key) is not None:
                raise InputError(key, "layouts says it for each GPU", "leave one of them out")
        owners: dict[int, int] = {}
        for index, entry in enumerate(self.layouts):
            for position, number in enumerate(entry.devices):
                if owners.setdefault(number, index) != index:
                    fact = f"GPU {number} is in layouts[{owners[number]}], too"
                    path = f"layouts[{index}].devices[{position}]"
                    raise InputError(path, fact, "name each GPU once")
        return self


class Dra(Model):
    """GPUs or MIG slices allocated by claim (Dynamic Resource Allocation), not counted; one pod per device.

    NVIDIA's DRA driver offers them; the device plugin stays off the nodes, or both would allocate them. The
    MIG manager cuts slices before any pod runs: a driver that cuts them for each claim is alpha.
    """

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "replicas": ("a claim takes whole GPUs or slices", "leave it out, or use kind: time_slicing or mps")
    }

    kind: Literal["dra"]
    layout: dict[str, Count] | str | None = option(
        "MIG slices of each GPU, as for kind mig; whole GPUs if left out.", union_mode="left_to_right"
    )


def _refuse_vgpu(value: Any) -> Any:
    if isinstance(value, Mapping) and value.get("kind") == "vgpu":
        fact = "the hypervisor creates a vGPU, its licence server enables it, and the guest sees one GPU"
        remedy = "use exclusive in such a guest, or time_slicing, mps or mig if you have the GPU itself"
        raise InputError("kind", fact, remedy)
    return value


Sharing = Annotated[
    Annotated[Exclusive | TimeSlicing | Mps | Mig | Dra, Field(discriminator="kind")],
    BeforeValidator(_refuse_vgpu),
]


Trust = Literal["single", "multi"]


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
        _check_trust(gpus, sharing)


def _check_trust(gpus: Sequence[Gpu], sharing: Sharing) -> None:
    """MIG slices have their own memory, caches and fault isolation; shares of one GPU or slice do not.

    Sources: NVIDIA's pages on time-slicing (no memory or fault isolation between replicas) and on MPS (a
    client's fatal fault ends every other client of the GPU, and all must be one user's).
    """
    mig = ", mig without share" if all(gpu.mig_capable for gpu in gpus) else ""
    isolated = f"use sharing: {{kind: exclusive}}{mig}, or trust: single"
    if isinstance(sharing, TimeSlicing):
        fact = "pods that take turns on a GPU share its memory and its faults"
        raise InputError("sharing.kind", f"{fact}, and trust is multi", isolated)
    if isinstance(sharing, Mps):
        fact = "a client's fatal fault ends all other clients of its GPU, so MPS serves one owner"
        raise InputError("sharing.kind", f"{fact}, and trust is multi", isolated)
    if isinstance(sharing, Mig) and sharing.share:
        fact = "pods that take turns on a slice share its memory and its faults"
        raise InputError("sharing.share", f"{fact}, and trust is multi", "leave it out, or use trust: single")
    assert isinstance(sharing, Exclusive | Mig | Dra)
