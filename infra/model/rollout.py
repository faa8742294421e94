"""A Deployment's Service, and the ways to replace its pods in an update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from infra.model.base import Count, Model, Seconds, Strict, matching

Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
COLOURS = ("blue", "green")


# The kubelet parses it as a URL: what follows // is a host, and what follows # is never sent
# (k8s.io/kubernetes, pkg/probe/http, formatURL).
Path = Annotated[
    Strict, matching(r"/(?!/)[!\"$-~]*", "a path", "begin it with one /, and use no blanks and no #")
]


class Service(Model):
    """A ClusterIP Service of the workload's name, in front of its pods."""

    port: Port = Field(description="Port of the Service.")
    target_port: Port | None = Field(
        default=None, description="Port that the container listens on; the Service's own if left out."
    )
    ready_path: Path | None = Field(
        default=None,
        description="HTTP path on that port that answers 200 once a pod can serve, for example "
        "/v2/health/ready; without it a pod counts as ready as soon as it runs.",
    )

    @property
    def container_port(self) -> int:
        return self.target_port or self.port


class Rolling(Model):
    """Old pods end first and new ones take their GPUs, so no further GPU is needed."""

    kind: Literal["rolling"]
    step: Count = Field(default=1, description="Pods that are replaced at a time.")


class Surge(Model):
    """New pods start first: as many serve as before, and each new pod needs a GPU beside the old ones'."""

    kind: Literal["surge"]
    step: Count = Field(default=1, description="Pods that are replaced at a time.")


_NO_STEP = ("all old pods end before the first new one starts", "leave it out, or use kind: rolling")


class Recreate(Model):
    """All old pods end, then all new ones start; no pod serves in between."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {"step": _NO_STEP}

    kind: Literal["recreate"]


class BlueGreen(Model):
    """Two Deployments, one live: the other grows as the live one shrinks, and the Service switches once.

    Both together never have more pods than replicas, so no second set of GPUs is needed; during the update
    fewer pods serve. If the new pods do not become ready, the update is rolled back.
    """

    kind: Literal["blue_green"]
    step: Count = Field(default=1, description="Pods that are replaced at a time.")
    switch_at: Count | None = Field(
        default=None,
        description="Ready new pods at which the Service switches to them; half of replicas, rounded up, if "
        "left out, which keeps the most pods serving during the update.",
    )
    deadline_seconds: Seconds | None = Field(
        default=None,
        description="Seconds without progress after which the update is rolled back and fails; start_minutes "
        "if left out.",
    )


Update = Annotated[Rolling | Surge | Recreate | BlueGreen, Field(discriminator="kind")]
