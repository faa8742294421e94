"""Charts that are read from what the toolchain has: those of controllers that run beside the control plane.

They are those of the module's ``config/default``, in the release's namespace and with its tolerations. Its
webhooks are left out: they only validate, and fail open. The published chart has the same objects with more
settings.

The operands, which the simulator plays, wait for their turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gpuform.checkout.scratch import read_files
from infra import versions
from infra.strict_yaml import Loader
from lab.sidecars.controllers.release import START
from lab.sidecars.controllers.rows import CHARTS, CONTROLLERS
from lab.toolchain.catalogue import GPU_OPERATOR
from lab.toolchain.module_files import Source, cached_folder


def pin_folder(name: str) -> str:
    """Folder of the go.mod that requires the version, relative to the repository."""
    return f"toolchain/{CHARTS[name].name}"


def controller_chart(name: str, pinned: Path, cache: Path) -> Path:
    """Folder with the published chart of a controller; fetched once, then cached.

    Raises Failure if the module cannot be fetched, InputError if Go is missing.
    """
    row = CHARTS[name]
    source = Source(f"chart-{name}", f"the chart {name}", row.module, Path(row.charts[name]), "Chart.yaml")
    return cached_folder(source, pinned, cache)


MODULE = "github.com/aws/karpenter-provider-aws"
FOLDER = "toolchain/karpenter-crds"
_CALLED = "Karpenter's CRDs"
_CHART = Source("karpenter-crds", _CALLED, MODULE, Path("charts", "karpenter-crd"), "Chart.yaml")


def crds_chart(pinned: Path, cache: Path) -> Path:
    """Folder with the chart of the version that ``pinned``/go.mod requires; fetched once, then cached.

    Raises Failure if the module cannot be fetched, InputError if Go is missing.
    """
    return cached_folder(_CHART, pinned, cache)


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


def keda_files(pinned: Path, cache: Path, version: str) -> Mapping[str, bytes]:
    """The chart's files. Raises Failure if the module cannot be fetched, InputError if Go is missing."""
    config = cached_folder(SOURCE, pinned, cache)
    texts = [_to_template(manifest) for manifest in (*_crds(config), *_manifests(config))]
    metadata = {"apiVersion": "v2", "name": NAME, "version": version}
    files = {"Chart.yaml": json.dumps(metadata).encode(), "values.yaml": b"tolerations: []\n"}
    return {**files, "templates/all.yaml": "\n---\n".join(texts).encode()}


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
    text = text.replace(f'"namespace": "{_NAMESPACE}"', '"namespace": "{{ .Release.Namespace }}"')
    return text.replace(f'"{_TOLERATIONS}"', "{{ toJson .Values.tolerations }}")


_NFD = "charts/node-feature-discovery/"
_UNRELEASED = "v1.0.0-devel"  # version of the chart in the operator's repository


def operator_files(program: Path, version: str) -> Mapping[str, bytes]:
    """The chart's files, as of the ``version`` of the stack; empty for the pinned one.

    ``program`` is the operator's, or a link to it, next to NFD's. Each has its chart in the folder ``chart``
    next to it; NFD's official image has none: it is that of the operator's chart. A chart of another version
    is another release to the operator: it starts a driver upgrade [NVIDIA/gpu-operator 25.3.4, helm.sh/chart
    in all pod templates].
    """
    programs = (program, program.with_name("nfd-master"))
    chart, nfd = (read_files(item.resolve().parent / "chart") for item in programs)
    metadata, values = yaml.safe_load(chart["Chart.yaml"]), yaml.safe_load(chart["values.yaml"])
    if metadata["version"] == _UNRELEASED:
        metadata["appVersion"] = f"v{GPU_OPERATOR.tool_version}"
    metadata["version"] = version or versions.GPU_OPERATOR
    values["daemonsets"]["annotations"] = {START: "waits"}
    if nfd:
        chart = {path: content for path, content in chart.items() if not path.startswith(_NFD)}
        chart |= {f"{_NFD}{path}": content for path, content in nfd.items()}
        for dependency in metadata["dependencies"]:
            dependency["version"] = yaml.safe_load(nfd["Chart.yaml"])["version"]
    return {**chart, "Chart.yaml": _dump(metadata), "values.yaml": _dump(values)}


def _dump(document: Any) -> bytes:
    return yaml.safe_dump(document, sort_keys=False).encode()
