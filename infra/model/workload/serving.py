"""How a workload serves: its Service, how an update replaces its pods, scaling by requests, models by KServe.

Rules of KServe are those of 0.17.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from infra.model.base.errors import InputError
from infra.model.base.fields import (
    MAX_PODS,
    Count,
    Model,
    ObjectName,
    PodCount,
    Port,
    Seconds,
    Strict,
    Text,
    matching,
    option,
    refusing,
    required,
)

# The kubelet parses it as a URL: what follows // is a host, and what follows # is never sent
# (k8s.io/kubernetes, pkg/probe/http, formatURL).
Path = Annotated[
    Strict, matching(r"/(?!/)[!\"$-~]*", "a path", "begin it with one /, and use no blanks and no #")
]


class Service(Model):
    """A ClusterIP Service of the workload's name, in front of its pods."""

    port: Port = required("Port of the Service.")
    target_port: Port | None = option("Port that the container listens on; the Service's own if left out.")
    ready_path: Path | None = option(
        "HTTP path on that port that answers 200 once a pod can serve, for example /v2/health/ready; "
        "without it a pod counts as ready as soon as it runs."
    )

    @property
    def container_port(self) -> int:
        return self.target_port or self.port


class Rolling(Model):
    """Old pods end first and new ones take their GPUs, so no further GPU is needed."""

    kind: Literal["rolling"]
    step: Count = option("Pods that are replaced at a time.", 1)


class Surge(Model):
    """New pods start first: as many serve as before, and each new pod needs a GPU beside the old ones'."""

    kind: Literal["surge"]
    step: Count = option("Pods that are replaced at a time.", 1)


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
    step: Count = option("Pods that are replaced at a time.", 1)
    switch_at: Count | None = option(
        "Ready new pods at which the Service switches to them; half of replicas, rounded up, if left out, "
        "which keeps the most pods serving during the update."
    )
    deadline_seconds: Seconds | None = option(
        "Seconds without progress after which the update is rolled back and fails; start_minutes if left out."
    )


Update = Annotated[Rolling | Surge | Recreate | BlueGreen, Field(discriminator="kind")]


TRITON_PORT = 8002
"""Triton's default of --metrics-port [Triton, user guide, metrics]."""

LONGEST_S = 3600
"""Most seconds of a HorizontalPodAutoscaler's stabilizationWindowSeconds [k8s.io/api, autoscaling/v2]."""


class Metrics(Model):
    """Where each pod reports its metrics to Prometheus."""

    port: Port = option("Port of the container; Triton's if left out.", TRITON_PORT)
    path: Path = option("HTTP path on that port.", "/metrics")


class Scale(Model):
    """Number of pods by requests per second, never by the load of a GPU."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        key: ("a busy GPU does not tell how many requests wait", "give qps_per_replica")
        for key in ("gpu", "gpu_utilization", "utilization")
    }

    min: Annotated[int, Field(strict=True, ge=0, le=MAX_PODS)] = option(
        "Fewest pods; 0 needs a query, because then no pod counts requests.", 1
    )
    max: PodCount = required("Most pods; the pools must have room for them.")
    qps_per_replica: Annotated[float, Field(ge=0.001, le=1e6, allow_inf_nan=False)] = required(
        "Requests per second for each pod: a pod is added for each further such number. Less than a pod can "
        "answer, or the count of answered requests never exceeds it."
    )
    query: Text | None = option(
        "PromQL with the requests per second of all pods as one number. If left out, the requests that "
        "Triton's pods have answered (nv_inference_request_success)."
    )
    cooldown_seconds: Annotated[Count, Field(le=LONGEST_S)] = option(
        "Seconds of fewer requests until pods are taken away, the last one included.", 300
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> Scale:
        if self.min > self.max:
            raise InputError("min", f"{self.min} is more than max, {self.max}", f"use {self.max} or less")
        if self.min == 0 and self.query is None:
            fact = "without pods none counts requests, so the first request would start no pod"
            remedy = "use 1 or more, or give a query of what is in front of the pods (ingress, gateway)"
            raise InputError("min", fact, remedy)
        if self.query is not None:
            _check_query(self.query)
        return self


_TEXT_OR_COMMENT = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`[^`]*`|#.*""")
"""Of PromQL [prometheus.io, querying, basics: string literals, comments]."""
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def _check_query(query: str) -> None:
    """Refuse what is no PromQL at first sight: only Prometheus has its parser."""
    code = _TEXT_OR_COMMENT.sub("", query)
    if not code.strip():
        raise InputError("query", "is empty", "give a PromQL expression, or leave it out")
    opened: list[str] = []
    for mark in re.findall(r"[][(){}'\"`]", code):
        if mark in _CLOSING:
            opened.append(mark)
        elif not opened or _CLOSING[opened.pop()] != mark:
            opened = [mark]
            break
    if opened:
        fact = f"is no PromQL: {opened[-1]!r} has no counterpart"
        raise InputError("query", fact, "correct it, and try it in Prometheus")


MODEL_MOUNT = "/mnt/models"
"""Where KServe puts a model [pkg/constants, DefaultModelLocalMountPath]."""
READY_PATH = "/v2/health/ready"
"""Triton's path that answers 200 once its models are loaded [Triton, health extension]."""
LONGEST_NAME = 48
"""With ``isvc.`` and ``-predictor`` it is a label's value, of 63 characters [GetRawServiceLabel]."""
Format = Literal["onnx", "pytorch", "tensorflow", "tensorrt", "triton"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""Those of KServe's runtime for Triton [config/runtimes/kserve-tritonserver.yaml]."""
_OVERWRITTEN = ("INFERENCE_SERVICE_NAME", "STORAGE_URI")  # pkg/constants
_REPOSITORY = re.compile(r"--model-(?:repository|store)[= ](\S+)")
_URI = re.compile(
    r"(?:gs|hf|s3)://[a-zA-Z0-9][!-?A-~]*|https://[a-zA-Z0-9][^/@\s]*/[!-?A-~]+"
    r"|pvc://[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?(?:/(?!.*\.\.)[!-~]*)?"
)


# What KServe's storage initializer downloads [kserve-resources, storagecontainer.yaml], or mounts. Not the
# rest of its list: http is not encrypted, file is a folder of the downloading container, and oci lets the
# pod's containers see each other's processes. An @ would come with credentials.
_FETCHED = refusing(
    lambda value: not _URI.fullmatch(value),
    "{!r} is no address of a model that KServe fetches",
    "write s3://, gs:// or hf:// with a path, https://HOST/PATH, or pvc://CLAIM/FOLDER, without credentials",
)


class ServedModel(Model):
    """Where the model is; KServe fetches it into each pod before Triton starts there."""

    uri: Annotated[Strict, _FETCHED] = required(
        "A Triton model repository: s3://, gs://, hf://, https:// (an archive), or pvc://CLAIM/FOLDER of a "
        "claim of its namespace, which is mounted read-only."
    )
    format: Format = required(
        "Of the model; `triton` for any other that a backend of Triton reads, such as Python."
    )
    service_account: ObjectName | None = option(
        "ServiceAccount of its namespace with the credentials for the uri."
    )


def check_container(command: tuple[str, ...], env: Mapping[str, str]) -> None:
    """Refuse what KServe overwrites, or reads as a template of Go [utils.go, ReplacePlaceholders]."""
    for name in _OVERWRITTEN:
        if name in env:
            raise InputError(f"env.{name}", "KServe sets it", "leave it out")
    texts = [("command", text) for text in command] + [(f"env.{name}", value) for name, value in env.items()]
    for path, text in texts:
        if "{{" in text:
            fact = "KServe takes {{ for the beginning of a template"
            raise InputError(path, fact, "put it into a file of the image")
    for folder in _REPOSITORY.findall(" ".join(command)):
        if not f"{folder}/".startswith(f"{MODEL_MOUNT}/"):
            fact = f"serves {folder}, and KServe puts the model into {MODEL_MOUNT}"
            raise InputError("command", fact, f"use {MODEL_MOUNT}, or leave command out")
