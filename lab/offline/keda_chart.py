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

from lab.sidecars.controllers.rows import CONTROLLERS
from lab.toolchain.module_files import Source, cached

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
    config = cached(SOURCE, pinned, cache)
    texts = [_templated(one) for one in (*_crds(config), *_manifests(config))]
    described = {"apiVersion": "v2", "name": NAME, "version": version}
    return {
        "Chart.yaml": json.dumps(described).encode(),
        "values.yaml": b"tolerations: []\n",
        "templates/all.yaml": "\n---\n".join(texts).encode(),
    }


def _crds(config: Path) -> Iterator[Json]:
    """With the module's patches, which kustomize would apply (RFC 6902, operations add and remove)."""
    for file in sorted((config / "crd" / "bases").glob("*.yaml")):
        crd = yaml.safe_load(file.read_text())
        patch = config / "crd" / "patches" / f"{crd['spec']['names']['singular']}_patch.yaml"
        for one in yaml.safe_load(patch.read_text()) if patch.is_file() else ():
            *parents, last = one["path"].strip("/").split("/")
            here = crd
            for key in parents:
                here = here[int(key)] if isinstance(here, list) else here[key]
            if one["op"] == "remove":
                del here[last]
            elif last == "-":
                here.append(one["value"])
            else:
                here[last] = one["value"]
        yield crd


def _manifests(config: Path) -> Iterator[Json]:
    for part in _PARTS:
        for file in sorted((config / part).glob("*.yaml")):
            for one in yaml.safe_load_all(file.read_text()) if file.name != "kustomization.yaml" else ():
                yield _labelled(one) if one["kind"] == "Deployment" else one


def _labelled(deployment: Json) -> Json:
    """With the labels by which the keeper and kwok's stages know it, and the values' tolerations."""
    template = deployment["spec"]["template"]
    own = _LABELS[template["metadata"]["labels"]["app"]]
    for meta in (deployment["metadata"], template["metadata"]):
        meta["labels"] = {**meta["labels"], **own}
    template["spec"]["tolerations"] = _TOLERATIONS
    return deployment


def _templated(manifest: Json) -> str:
    """The manifest as JSON, which is YAML, with what helm fills in."""
    text = json.dumps(manifest).replace("{{", '{{ "{{" }}')
    for written, filled in (
        (f'"namespace": "{_NAMESPACE}"', '"namespace": "{{ .Release.Namespace }}"'),
        (f'"{_TOLERATIONS}"', "{{ toJson .Values.tolerations }}"),
    ):
        text = text.replace(written, filled)
    return text
