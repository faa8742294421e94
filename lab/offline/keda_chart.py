"""A chart of KEDA from its Go module, which has no chart: its CRDs and the manifests of its two programs.

They are those of the module's ``config/default``, in the release's namespace and with its tolerations. Its
webhooks are left out: they only validate, and fail open. The published chart has the same objects with more
settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.strict_yaml import Loader
from lab.sidecars.controllers.rows import CONTROLLERS
from lab.toolchain.module_files import Source, cached_folder

NAME = "keda"
SOURCE = Source(
    "keda-manifests",
    "KEDA's manifests",
    CONTROLLERS[NAME].module,
    Path("config"),
    "default/kustomization.yaml",
)
_PARTS = ("rbac", "service_account", "manager", "metrics-server")
_NAMESPACE, _TOLERATIONS = "keda", "@tolerations@"
_LABELS = {
    "keda-operator": CONTROLLERS["keda"].labels,
    "keda-metrics-apiserver": CONTROLLERS["keda-adapter"].labels,
}
"""By the module's own label app."""

Json = dict[str, Any]


def files(pinned: Path, cache: Path, version: str) -> Mapping[str, bytes]:
    """The chart's files. Raises Failure if the module cannot be fetched, InputError if Go is missing."""
    config = cached_folder(SOURCE, pinned, cache)
    texts = [_to_template(manifest) for manifest in (*_crds(config), *_manifests(config))]
    metadata = {"apiVersion": "v2", "name": NAME, "version": version}
    return {
        "Chart.yaml": json.dumps(metadata).encode(),
        "values.yaml": b"tolerations: []\n",
        "templates/all.yaml": "\n---\n".join(texts).encode(),
    }


def _crds(config: Path) -> Iterator[Json]:
    """With the module's patches, which kustomize would apply (RFC 6902, operations add and remove)."""
    for file in sorted((config / "crd" / "bases").glob("*.yaml")):
        crd = yaml.load(file.read_text(), Loader)  # noqa: S506  (a SafeLoader)
        patch = config / "crd" / "patches" / f"{crd['spec']['names']['singular']}_patch.yaml"
        for operation in yaml.safe_load(patch.read_text()) if patch.is_file() else ():
            *parents, last = operation["path"].strip("/").split("/")
            target = crd
            for key in parents:
                target = target[int(key)] if isinstance(target, list) else target[key]
            if operation["op"] == "remove":
                del target[last]
            elif last == "-":
                target.append(operation["value"])
            else:
                target[last] = operation["value"]
        yield crd


def _manifests(config: Path) -> Iterator[Json]:
    for part in _PARTS:
        for file in sorted((config / part).glob("*.yaml")):
            for manifest in yaml.safe_load_all(file.read_text()) if file.name != "kustomization.yaml" else ():
                yield _with_labels(manifest) if manifest["kind"] == "Deployment" else manifest


def _with_labels(deployment: Json) -> Json:
    """With the labels by which the keeper and kwok's stages know it, and the values' tolerations."""
    template = deployment["spec"]["template"]
    own_labels = _LABELS[template["metadata"]["labels"]["app"]]
    for meta in (deployment["metadata"], template["metadata"]):
        meta["labels"] = {**meta["labels"], **own_labels}
    template["spec"]["tolerations"] = _TOLERATIONS
    return deployment


def _to_template(manifest: Json) -> str:
    """The manifest as JSON, which is YAML, with what helm fills in."""
    text = json.dumps(manifest).replace("{{", '{{ "{{" }}')
    for source, replacement in (
        (f'"namespace": "{_NAMESPACE}"', '"namespace": "{{ .Release.Namespace }}"'),
        (f'"{_TOLERATIONS}"', "{{ toJson .Values.tolerations }}"),
    ):
        text = text.replace(source, replacement)
    return text
