"""Kubernetes objects are what the SDK's own classes would declare."""

from __future__ import annotations

import importlib
from typing import Any

import pulumi
import pytest
from google.protobuf.json_format import MessageToDict

from components.manifest import KINDS, resource
from tests.components.recording import run

pytestmark = pytest.mark.unit

METADATA = {"metadata": {"name": "one", "labels": {"app.kubernetes.io/managed-by": "gpuform"}}}
"""Metadata of every object, with a key that is not a Python identifier."""


_ROLE = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"}}
REQUIRED: dict[str, dict[str, Any]] = {
    "ClusterRoleBinding": _ROLE,
    "Deployment": {"spec": {"revisionHistoryLimit": 2}},
    "PriorityClass": {"value": 7},
    "ResourceClaimTemplate": {"spec": {"spec": {"devices": {}}}},
    "RoleBinding": _ROLE,
    "RuntimeClass": {"handler": "nvidia"},
    "StatefulSet": {"spec": {"revisionHistoryLimit": 2}},
    "StorageClass": {"provisioner": "simulator.gpuform.io/volumes"},
}
"""Fields that the SDK's classes of these kinds require."""


def _by_the_sdk(name: str, manifest: dict[str, Any]) -> None:
    """Declare the object by the SDK's class of its kind, or by CustomResource."""
    version, kind = manifest["apiVersion"], manifest["kind"]
    body = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    group, _, number = version.rpartition("/")
    if (not group.endswith("k8s.io") and group not in ("", "apps", "batch", "policy")) or "kueue" in group:
        custom = importlib.import_module("pulumi_kubernetes.apiextensions").CustomResource
        custom(name, api_version=version, kind=kind, **body)
        return
    module = importlib.import_module(f"pulumi_kubernetes.{group.partition('.')[0] or 'core'}.{number}")
    python = {key.replace("R", "_r"): value for key, value in body.items()}
    getattr(module, kind)(name, **python)


@pytest.mark.parametrize(("version", "kind"), sorted(KINDS))
def test_the_engine_is_told_the_same_as_by_the_sdk(version: str, kind: str) -> None:
    manifest = {"apiVersion": version, "kind": kind, **METADATA, **REQUIRED.get(kind, {})}

    def program() -> None:
        _by_the_sdk("theirs", manifest)
        resource("ours", manifest, pulumi.ResourceOptions())

    requests = {request.name: request.request for request in run(program).resources}
    sdk, own = (
        (request.type, MessageToDict(request.object), request.version, request.pluginDownloadURL)
        for request in (requests["theirs"], requests["ours"])
    )
    assert own == sdk


def test_a_kind_that_is_not_declared_here_is_refused() -> None:
    with pytest.raises(KeyError, match="Secret"):
        resource("one", {"apiVersion": "v1", "kind": "Secret", **METADATA}, pulumi.ResourceOptions())
