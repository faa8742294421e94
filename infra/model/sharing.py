"""How a pool's GPUs are shared; declared once per pool, and everything else follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from infra.model.base import Count, Model
from infra.model.errors import InputError


def _shares_something(value: Any) -> Any:
    if value == 1 and not isinstance(value, bool):
        raise InputError("", "1 shares nothing", "use 2 or more, or kind: exclusive")
    return value


Replicas = Annotated[int, Field(strict=True, ge=2), BeforeValidator(_shares_something)]


class Exclusive(Model):
    """One pod per GPU."""

    kind: Literal["exclusive"] = "exclusive"


class TimeSlicing(Model):
    """Several pods take turns on each GPU; nothing keeps one from taking all the memory."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "layout": ("time-slicing shares whole GPUs and knows no layout", "leave it out, or use kind: mig"),
    }

    kind: Literal["time_slicing"]
    replicas: Replicas = Field(description="Pods that share one GPU, 2 or more.")
    rename: bool = Field(
        default=True,
        strict=True,
        description="Offer nvidia.com/gpu.shared, so that no pod gets a share by asking for a whole GPU.",
    )
    fail_requests_greater_than_one: bool = Field(
        default=True,
        strict=True,
        description="Refuse pods that ask for 2 shares: they would get no more than with 1.",
    )


class Mps(Model):
    """Several processes run on each GPU at the same time, each with an equal part of its memory."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "layout": (
            "MPS and MIG exclude each other, the device plugin shares only whole GPUs by MPS",
            "use kind: mps without layout, or kind: mig",
        ),
    }

    kind: Literal["mps"]
    replicas: Annotated[Replicas, Field(le=48)] = Field(
        description="Pods that share one GPU, 2 to 48 (the MPS server takes no more clients)."
    )


_NOT_AGAIN = (
    "a MIG slice is not shared a second time",
    "leave it out, or use kind: time_slicing without layout",
)


class Mig(Model):
    """Each GPU is cut into slices with memory and compute of their own."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "mps": (
            "MPS and MIG exclude each other, the device plugin shares only whole GPUs by MPS",
            "leave it out, or use kind: mps without layout",
        ),
        "replicas": _NOT_AGAIN,
        "share": _NOT_AGAIN,
    }

    kind: Literal["mig"]
    layout: dict[str, Count] | str = Field(
        union_mode="left_to_right",
        description="Slices of each GPU as {profile: number}, or all-<profile> for as many as one GPU holds.",
    )


class Dra(Model):
    """Whole GPUs, had by claim (Dynamic Resource Allocation) instead of counted; one pod per GPU.

    NVIDIA's DRA driver offers them, and the device plugin stays off the nodes, or both would hand them out.
    """

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "replicas": ("a claim takes whole GPUs", "leave it out, or use kind: time_slicing or mps"),
        "layout": ("a claim takes whole GPUs", "leave it out, or use kind: mig"),
    }

    kind: Literal["dra"]


Sharing = Annotated[Exclusive | TimeSlicing | Mps | Mig | Dra, Field(discriminator="kind")]
