"""KServe: the model that an inference workload serves. Rules are those of KServe 0.17.0."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from infra.model.base import Model, ObjectName, Strict
from infra.model.errors import InputError

KSERVE, CERT_MANAGER = "gpuform-kserve", "gpuform-cert-manager"
"""Namespaces of KServe, and of cert-manager, which issues the certificate of KServe's webhooks."""
MOUNT = "/mnt/models"
"""Where KServe puts a model [pkg/constants, DefaultModelLocalMountPath]."""
READY = "/v2/health/ready"
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


def _uri(value: str) -> str:
    """What KServe's storage initializer downloads [kserve-resources, storagecontainer.yaml], or mounts.

    Not the rest of its list: http is not encrypted, file is a folder of the downloading container, and oci
    lets the pod's containers see each other's processes. An @ would come with credentials.
    """
    if not _URI.fullmatch(value):
        fact = f"{value!r} is no address of a model that KServe fetches"
        remedy = "write s3://, gs:// or hf:// with a path, https://HOST/PATH, or pvc://CLAIM/FOLDER"
        raise InputError("", fact, f"{remedy}, without credentials")
    return value


class ServedModel(Model):
    """Where the model is; KServe fetches it into each pod before Triton starts there."""

    uri: Annotated[Strict, AfterValidator(_uri)] = Field(
        description="A Triton model repository: s3://, gs://, hf://, https:// (an archive), or pvc://CLAIM/"
        "FOLDER of a claim of its namespace, which is mounted read-only."
    )
    format: Format = Field(
        description="Of the model; `triton` for any other that a backend of Triton reads, such as Python."
    )
    service_account: ObjectName | None = Field(
        default=None, description="ServiceAccount of its namespace with the credentials for the uri."
    )


class KServe(Model):
    """Settings of KServe, which is installed if a workload has a model."""

    cert_manager: Literal["install", "existing"] = Field(
        default="install", description="`existing` if the cluster has cert-manager."
    )


def check_container(command: tuple[str, ...], env: Mapping[str, str]) -> None:
    """Refuse what KServe overwrites, or reads as a template of Go [utils.go, ReplacePlaceholders]."""
    for name in _OVERWRITTEN:
        if name in env:
            raise InputError(f"env.{name}", "KServe sets it", "leave it out")
    words = [("command", word) for word in command] + [(f"env.{name}", value) for name, value in env.items()]
    for path, word in words:
        if "{{" in word:
            fact = "KServe takes {{ for the beginning of a template"
            raise InputError(path, fact, "put it into a file of the image")
    for folder in _REPOSITORY.findall(" ".join(command)):
        if not f"{folder}/".startswith(f"{MOUNT}/"):
            fact = f"serves {folder}, and KServe puts the model into {MOUNT}"
            raise InputError("command", fact, f"use {MOUNT}, or leave command out")
