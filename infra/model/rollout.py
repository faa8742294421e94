"""How a Deployment's pods are reached, and how new ones take the place of old ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from infra.model.base import Count, Model
from infra.model.errors import InputError

Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
COLOURS = ("blue", "green")


def _path(value: str) -> str:
    if not value.startswith("/"):
        raise InputError("", f"{value!r} is no path", "begin it with /")
    return value


class Service(Model):
    """A ClusterIP Service of the workload's name, in front of its pods."""

    port: Port = Field(description="Port of the Service.")
    target_port: Port | None = Field(
        default=None, description="Port that the container listens on; the Service's own if left out."
    )
    ready_path: Annotated[str, AfterValidator(_path)] | None = Field(
        default=None,
        strict=True,
        description="HTTP path on that port that answers 200 once a pod can serve, for example "
        "/v2/health/ready; without it a pod counts as ready as soon as it runs.",
    )

    @property
    def container_port(self) -> int:
        """Port that the container listens on."""
        return self.target_port or self.port


class Rolling(Model):
    """Old pods go first and new ones take their GPUs: none is needed beside theirs."""

    kind: Literal["rolling"]
    step: Count = Field(default=1, description="Pods that are replaced at a time.")


class Surge(Model):
    """New pods come first: nothing serves less, and each new pod needs a GPU beside those of the old ones."""

    kind: Literal["surge"]
    step: Count = Field(default=1, description="Pods that are replaced at a time.")


_NO_STEP = ("all old pods go before the first new one comes", "leave it out, or use kind: rolling")


class Recreate(Model):
    """All old pods go, then all new ones come; nothing serves in between."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {"step": _NO_STEP}

    kind: Literal["recreate"]


class BlueGreen(Model):
    """Two Deployments, one live: the other grows as the live one shrinks, and the Service switches once.

    Both together never have more pods than replicas, so that no second set of GPUs is needed; while it
    lasts, fewer pods serve. If the new pods do not get ready, all of it goes back.
    """

    kind: Literal["blue_green"]
    step: Count = Field(default=1, description="Pods that are replaced at a time.")
    switch_at: Count | None = Field(
        default=None,
        description="Ready new pods at which the Service switches to them; half of replicas, rounded up, if "
        "left out: then the fewest pods that ever serve are as many as can be.",
    )
    deadline_seconds: Count = Field(
        default=600, description="Seconds without progress after which the update goes back and fails."
    )


Update = Annotated[Rolling | Surge | Recreate | BlueGreen, Field(discriminator="kind")]
