"""Workloads: what runs on the pools; one schema for rehearsal, status and planner."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from infra.model.base.errors import InputError
from infra.model.base.fields import MAX_PODS, Count, Flag, Minutes, WorkloadName, option
from infra.model.base.registries import PinnedImage
from infra.model.workload import serving
from infra.model.workload.base import BaseWorkload, Notebook
from infra.model.workload.queues import Placement
from infra.model.workload.serving import BlueGreen, Metrics, Recreate, Scale, ServedModel, Service, Update

_DNS_1035 = re.compile(r"[a-z].*")
_LONGEST_COLOURED = 46  # with -green it is as long as any workload's name may be
RANKS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
"""Environment variables of an indexed job's pods, with the names that torch.distributed reads."""
_LONGEST_JOB = 7 * 1440
"""Minutes that an update waits for a job; the bound of a week is ours."""
_INDEX = "JOB_COMPLETION_INDEX"
_MAX_PARALLEL = 10_000
_MAX_INDEXED = 100_000
"""A Job's status has room for 10**5 indexes, or more of them with 10**4 pods at a time; of numbered pods no
more than 10**5 run at a time (k8s.io/kubernetes, pkg/apis/batch, validation.go and types.go)."""
_Pods = Annotated[int, Field(strict=True, ge=0, le=MAX_PODS)]


class _StartedWorkload(BaseWorkload):
    start_minutes: Minutes | None = option(
        "Minutes in which a new pod must be ready; a Deployment's progressDeadlineSeconds, and the time "
        "that an update waits for each step. If left out: 10 for the image, 15 more for a new node (elastic "
        "pools), 21 for new operands, 31 for a model (ready_path)."
    )


class PodWorkload(_StartedWorkload):
    """One bare Pod, which no controller recreates."""

    kind: Literal["pod"]


class DeploymentWorkload(_StartedWorkload):
    """Pods that are recreated wherever there is room."""

    kind: Literal["deployment"]
    replicas: _Pods = option("Number of pods.", 1)
    service: Service | None = Field(default=None)
    update: Update | None = option(
        "How new pods replace old ones. If left out: one after the other on the same GPUs if the number of "
        "nodes is fixed or its limit has no room for one more pod, else Kubernetes' default, which starts a "
        "new pod first."
    )

    @model_validator(mode="after")
    def _check_update(self) -> DeploymentWorkload:
        if self.service and not _DNS_1035.fullmatch(self.name):
            fact = f"{self.name!r} begins with a digit, and a Service's name may not"
            raise InputError("name", fact, "begin it with a letter, or leave service out")
        step = None if isinstance(self.update, Recreate) or self.update is None else self.update.step
        if step and step > self.pods > 0:
            raise InputError("update.step", f"{step} of {self.pods} replicas", f"use {self.pods} or less")
        if self.blue_green:
            if self.start_minutes and self.blue_green.deadline_seconds:
                fact = "update.deadline_seconds is given too"
                raise InputError("start_minutes", fact, "give one of the two")
            self._check_colours(self.blue_green)
        return self

    def _check_colours(self, update: BlueGreen) -> None:
        """Both colours must have pods at the moment of the switch."""
        if self.service is None:
            fact = "missing, and blue_green switches a Service from one colour to the other"
            raise InputError("service", fact, "give service: {port: N}, or use kind: rolling")
        if self.replicas < 2:
            fact = "blue_green keeps one pod that serves while its successor starts"
            raise InputError("replicas", fact, "use 2 or more, or update: {kind: recreate}")
        if update.switch_at and update.switch_at >= self.replicas:
            fact = f"with {update.switch_at} new pods of {self.replicas} no old one is left to serve"
            raise InputError("update.switch_at", fact, f"use {self.replicas - 1} or less")
        if len(self.name) > _LONGEST_COLOURED:
            fact = "two Deployments add their colours to it"
            raise InputError("name", fact, f"use at most {_LONGEST_COLOURED} characters")

    @property
    def switch_at(self) -> int:
        """Ready pods of the new colour at which the Service switches; for blue_green."""
        return (self.blue_green and self.blue_green.switch_at) or (self.replicas + 1) // 2

    @property
    def blue_green(self) -> BlueGreen | None:
        return self.update if isinstance(self.update, BlueGreen) else None

    @property
    def pods(self) -> int:
        return self.replicas


class JobWorkload(BaseWorkload):
    """Pods that run to completion."""

    kind: Literal["job"]
    parallelism: _Pods = option("Number of pods at the same time; 0 pauses the job.", 1)
    completions: Count | None = option("Number of pods that must succeed; parallelism, or 1, if left out.")
    indexed: Flag = option(
        "Number the pods (an Indexed Job): each gets RANK and WORLD_SIZE. If all run at the same time, they "
        "also get a headless Service with the job's name, and MASTER_ADDR and MASTER_PORT of the first pod.",
        False,
    )
    gang: Flag = option(
        "All its pods start together, or none; needs a queue, and its pool in queues.topology.", False
    )
    topology: Placement | None = Field(default=None)
    wait_minutes: Annotated[Count, Field(le=_LONGEST_JOB)] | None = option(
        "Minutes in which its pods must succeed, or the update fails. If left out, the update does not wait "
        "for them."
    )

    @model_validator(mode="after")
    def _check_completion(self) -> JobWorkload:
        if self.gang and not self.queue:
            raise InputError("gang", "the job is in no queue, and Kueue starts gangs", "give it a queue")
        if self.topology and not self.gang:
            raise InputError("topology", "the job is no gang", "leave it out, or set gang: true")
        if self.wait_minutes and not self.parallelism:
            raise InputError("wait_minutes", "with parallelism 0 no pod would ever succeed", "leave it out")
        if not self.indexed:
            return self
        if self.has_rendezvous and not _DNS_1035.fullmatch(self.name):
            fact = f"{self.name!r} begins with a digit, and the name of its pods' Service may not"
            raise InputError("name", fact, "begin it with a letter, or leave indexed out")
        limit = _MAX_INDEXED if self.total <= _MAX_INDEXED else _MAX_PARALLEL
        if self.parallelism > limit:
            fact = f"Kubernetes cannot track {self.total} numbered pods, {self.parallelism} at a time"
            raise InputError("parallelism", fact, f"use {limit} or less")
        for name in (*RANKS, _INDEX):
            if name in self.env:
                raise InputError(f"env.{name}", "indexed sets it", "leave it out, or leave indexed out")
        return self

    @property
    def total(self) -> int:
        """Pods that must succeed."""
        return self.completions or self.parallelism or 1

    @property
    def has_rendezvous(self) -> bool:
        """Whether its numbered pods all run at the same time, and so can find each other."""
        return self.indexed and self.parallelism == self.total

    @property
    def pods(self) -> int:
        return min(self.parallelism, self.total)


class InferenceWorkload(DeploymentWorkload):
    """A Deployment, or KServe's InferenceService, that serves a model: measured, and scaled by requests."""

    kind: Literal["inference"]  # type: ignore[assignment]
    scale: Scale | None = option("Number of pods by requests, instead of replicas; needs monitoring.")
    metrics: Metrics | None = option(
        "Metrics of its pods for Prometheus; Triton's if left out, none if scale has a query."
    )
    model: ServedModel | None = option(
        "Model that KServe fetches for Triton, which is the image; needs a service. If left out, the image "
        "or its command finds its models itself."
    )
    near: WorkloadName | None = option(
        "Workload of the same namespace, such as that of its data: pods run on the same node if it has "
        "room, else in the same zone if that has."
    )

    @model_validator(mode="after")
    def _check_scale(self) -> Self:
        if self.scale is None:
            return self
        if self.replicas != 1:
            fact = "scale is given too, and sets their number"
            raise InputError("replicas", fact, "leave it out: scale.min and scale.max are the bounds")
        return self

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.model is None:
            return self
        if self.pod:
            fact = "KServe makes the pods of a model"
            raise InputError("pod", fact, "leave it out, or have the image find its models without model")
        if self.service is None:
            fact = "missing, and KServe serves each model at a port"
            raise InputError("service", fact, "give service: {port: 80, target_port: 8000}")
        if len(self.name) > serving.LONGEST_NAME:
            fact = "KServe puts isvc. before it and -predictor behind it, in a label"
            raise InputError("name", fact, f"use at most {serving.LONGEST_NAME} characters")
        serving.check_container(self.command, self.env)
        if not self.command and self.pod_metrics and self.pod_metrics.port == self.service.container_port:
            fact = "Triton has its metrics at a port of their own"
            raise InputError("metrics.port", fact, "use another port than the service's, such as 8002")
        return self

    def _check_colours(self, update: BlueGreen) -> None:
        if self.model:
            fact = "KServe makes one Deployment, and blue_green moves pods between two"
            raise InputError("update.kind", fact, "use kind: rolling, surge or recreate, or no model")
        if self.scale:
            fact = "scale changes the number of one Deployment, and blue_green moves pods between two"
            raise InputError("update.kind", fact, "use kind: rolling or surge, or replicas without scale")
        super()._check_colours(update)

    @property
    def deployment_name(self) -> str:
        """Name of its Deployment, which KServe makes if there is a model [PredictorServiceName]."""
        return f"{self.name}-predictor" if self.model else self.name

    @property
    def pod_metrics(self) -> Metrics | None:
        """Where its pods report metrics; None if they report none."""
        return self.metrics or (None if self.scale and self.scale.query else Metrics())

    @property
    def pods(self) -> int:
        return self.scale.max if self.scale else self.replicas


class NotebookWorkload(Notebook, BaseWorkload):
    """A JupyterLab or VS Code of one user, with a Service and, if declared, a home volume.

    A StatefulSet of one pod: `kubectl scale statefulset NAME --replicas=0` stops it, `--replicas=1` starts
    it. An update changes neither, and does not wait for the pod.
    """

    kind: Literal["notebook"]
    image: PinnedImage = Field(
        default_factory=str, description="Built on the editor's image, which is used if left out."
    )


Workload = Annotated[
    PodWorkload | DeploymentWorkload | InferenceWorkload | JobWorkload | NotebookWorkload,
    Field(discriminator="kind"),
]
