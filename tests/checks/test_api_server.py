"""Every object of every environment, sent to the real API server with the real CRDs, including CEL.

Nothing is stored: it is a dry run, strict about fields and with warnings as errors. Admission is included,
so pods must meet the level of their namespace; namespaces and priority classes exist during the tests.
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from gpuform.checkout.paths import Paths
from infra import versions
from infra.model.base.namespaces import CERT_MANAGER
from infra.strict_yaml import load_all
from lab.offline.charts import Charts
from lab.plane import monitoring
from lab.toolchain import Toolchain
from tests.checks import everything
from tests.checks.charts import AT_HAND, OURS, crds_in, rendered, values_of
from tests.checks.everything import Document
from tests.conftest import Kubectl, Plane

pytestmark = pytest.mark.cluster

OWN = ("default", "kube-system")
PREFIX = "checks-"
FIRST = ("Namespace", "PriorityClass", "DeviceClass")
"""Kinds that others need: they are created, and deleted at the end."""


def moved(one: Document) -> Document:
    """The object in a namespace of this file: other tests on this plane create and delete the usual ones."""
    found = copy.deepcopy(one)
    meta = found["metadata"]
    if found["kind"] == "Namespace":
        meta["name"] = PREFIX + meta["name"]
    elif meta.get("namespace", "default") not in OWN:
        meta["namespace"] = PREFIX + meta["namespace"]
    return found


@cache
def every_object() -> tuple[Document, ...]:
    found: dict[str, Document] = {}
    for name in everything.environments():
        for item in map(moved, everything.objects(name)):
            found.setdefault(json.dumps(item, sort_keys=True), item)
    return tuple(found.values())


def needed_first(objects: Iterable[Document]) -> list[Document]:
    """One object per name: environments label the same namespace with their own names."""
    found = {(item["kind"], item["metadata"]["name"]): item for item in objects if item["kind"] in FIRST}
    return list(found.values())


def as_list(objects: Iterable[Document]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects]})


def crds_of(chart: str, version: str, plane: Plane) -> list[Document]:
    """Of a chart from a Go module."""
    here = Paths.here()
    folder = Charts(here.root, here.cache, plane.paths.state / "charts").folder(chart, version)
    helm = [str(plane.toolchain.path("helm")), "template", str(folder)]
    text = subprocess.run(helm, check=True, capture_output=True, text=True).stdout
    found = [item for item in load_all(text) if item]
    return [entry for entry in found if entry["kind"] == "CustomResourceDefinition"]


@cache
def prometheus_operators_crds() -> list[Document]:
    """From its Go module, as in the embedded control plane."""
    here = Paths.here()
    folder = monitoring.crd_folder(here.root / monitoring.CRDS, here.cache)
    texts = [file.read_text() for file in sorted(folder.glob("*.yaml"))]
    return [yaml.load(text, Loader=_PlainEquals) for text in texts]


class _PlainEquals(yaml.CSafeLoader):
    """A value in one of the CRDs is a bare ``=``: a YAML 1.1 type that PyYAML cannot construct."""


_PlainEquals.add_constructor("tag:yaml.org,2002:value", lambda loader, node: str(node.value))


Submit = Callable[..., str]


@pytest.fixture(scope="module")
def server(control_plane: Plane) -> Iterator[Submit]:
    """Sends objects for a dry run; returns kubectl's output, raises AssertionError with the refusal.

    Our objects may not cause warnings; third-party charts do, for deprecated labels.
    """
    kubectl: Kubectl = control_plane.kubectl
    objects = every_object()
    # CRDs stay: they belong to the plane, and other tests may have objects of them.
    kubectl("apply", "--server-side", "-f", "-", input=as_list(prometheus_operators_crds()))
    crds = [
        *crds_in(control_plane.toolchain, "kserve-crd"),
        *crds_of("karpenter-crd", versions.KARPENTER, control_plane),
        *crds_of("keda", versions.KEDA, control_plane),
        *crds_in(control_plane.toolchain),
    ]
    kubectl("apply", "--server-side", "-f", "-", input=as_list(crds))
    kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", "-", input=as_list(crds))
    needed = as_list(needed_first(objects))
    kubectl("apply", "--server-side", "-f", "-", input=needed)

    def submit(*manifests: Document, ours: bool = True) -> str:
        strict = ["--dry-run=server", "--validate=strict", "--force-conflicts"]
        strict += ["--warnings-as-errors"] if ours else []
        return kubectl("apply", "--server-side", *strict, "-o", "name", "-f", "-", input=as_list(manifests))

    yield submit
    kubectl("delete", "--wait=true", "-f", "-", input=needed)


def test_it_takes_every_object_without_a_warning(server: Submit) -> None:
    objects = every_object()
    kinds = {item["kind"] for item in objects}
    assert kinds >= {"ConfigMap", "Deployment", "EC2NodeClass", "Job", "Namespace", "Node", "NodeOverlay"}
    assert kinds >= {"ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "Topology"}  # Kueue's
    assert kinds >= {"InferenceService", "ServingRuntime"}  # KServe's
    assert len(server(*objects).split()) == len(objects) > 100


@pytest.mark.parametrize("chart", [one for one in AT_HAND if not one.endswith("-crd")])
def test_it_takes_what_helm_makes_of_the_values(server: Submit, toolchain: Toolchain, chart: str) -> None:
    override = "namespaceOverride: "
    of_its_own = {"karpenter": "kube-system", "kube-prometheus-stack-sim": f"{PREFIX}monitoring"}
    namespace = of_its_own.get(chart, f"{PREFIX}gpu-operator")
    texts = {
        yaml.safe_dump(values).replace(override, override + PREFIX).replace(CERT_MANAGER, namespace)
        for _, values in values_of(chart)
    }
    made = [
        item for text in sorted(texts) for item in rendered(toolchain, chart, yaml.safe_load(text), namespace)
    ]
    objects = [entry for entry in made if not entry["apiVersion"].startswith("cert-manager.io/")]
    assert len(server(*objects, ours=chart in OURS).split()) == len(objects) > 0


def test_large_crds_are_applied_by_the_server(server: Submit, control_plane: Plane) -> None:
    """An object that the client applies carries itself as an annotation, of 256 KiB at most."""
    large = max(prometheus_operators_crds(), key=lambda item: len(json.dumps(item)))
    server(large, ours=False)
    with pytest.raises(AssertionError, match=r"metadata\.annotations: Too long"):
        control_plane.kubectl("apply", "--dry-run=server", "-f", "-", input=as_list([large]))


CONTAINER = ("spec", "template", "spec", "containers", 0)
# Kind, path, another value, and a part of the server's message.
BAD: list[tuple[str, tuple[Any, ...], Any, str]] = [
    ("Namespace", ("date",), {}, 'unknown field "date"'),
    ("Node", ("spec", "taints", 0, "effect"), "NoScheduling", "Unsupported value"),
    ("Node", ("metadata", "labels", "nvidia.com/mig.config"), "3g.20gb+2x2g.10gb", "valid label"),
    ("Deployment", (*CONTAINER, "resources", "limits", "nvidia.com/gpu.shared"), "0.5", "must be an integer"),
    ("Deployment", (*CONTAINER, "resources", "limits", "nvidia.com/mig-1g.5gb+me"), "1", "+me"),
    ("Deployment", (*CONTAINER, "resource"), {}, "unknown field"),
    ("Deployment", (*CONTAINER, "securityContext"), {"privileged": True}, "violate PodSecurity"),
    ("Job", ("spec", "template", "spec", "tolerations", 0, "operator"), "Exist", "Unsupported value"),
    ("ClusterQueue", ("spec", "cohort"), "lab", "unknown field"),
    (
        "ScaledObject",
        (
            "spec",
            "advanced",
            "horizontalPodAutoscalerConfig",
            "behavior",
            "scaleDown",
            "stabilizationWindowSeconds",
        ),
        3601,
        "should be less than or equal to 3600",
    ),
    ("InferenceService", ("spec", "predictor", "model", "storageURI"), "s3://a", "unknown field"),
    ("ServingRuntime", ("spec", "containers", 0, "images"), "a:1", "unknown field"),
    ("ClusterQueue", ("spec", "queueingStrategy"), "FIFO", "Unsupported value"),
    (
        "ClusterQueue",
        ("spec", "resourceGroups", 0, "coveredResources"),
        ["a.b/c", "a.b/d"],
        "same number of resources",
    ),
    ("ResourceFlavor", ("spec", "tolerations", 0, "effect"), "Never", "supported taint effect values"),
    ("NodePool", ("spec", "replicas"), 2, "'weight' is not supported on static NodePools"),
    ("NodePool", ("spec", "weight"), 101, "spec.weight"),
    ("NodePool", ("spec", "template", "spec", "expireAfter"), "2 hours", "expireAfter"),
    ("EC2NodeClass", ("spec", "amiFamily"), "Bottlerocket", "when using an AL2023 alias"),
    ("EC2NodeClass", ("spec", "tags"), {"karpenter.sh/nodepool": "x"}, "restricted tag"),
    ("EC2NodeClass", ("spec", "instanceProfile"), "x", "exactly one of ['role', 'instanceProfile']"),
    ("NodeOverlay", ("spec", "capacity"), {"cpu": "4"}, "invalid resource restricted"),
    ("NodeOverlay", ("spec", "price"), "cheap", "spec.price"),
]


@pytest.mark.parametrize(("kind", "path", "value", "expected"), BAD)
def test_it_refuses_what_is_wrong(
    server: Submit, kind: str, path: tuple[Any, ...], value: Any, expected: str
) -> None:
    good = next(
        item for item in every_object() if item["kind"] == kind and ordinary(item) and has(item, path[:-1])
    )
    bad = copy.deepcopy(good)
    place: Any = bad
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    server(good)
    with pytest.raises(AssertionError) as refused:
        server(bad)
    assert expected in str(refused.value)


def test_a_static_node_pool_stays_one(server: Submit, control_plane: Plane) -> None:
    static = next(
        item for item in every_object() if item["kind"] == "NodePool" and "replicas" in item["spec"]
    )
    for key, value, expected in (
        ("weight", 10, "'weight' is not supported on static NodePools"),
        ("limits", {"nodes": "3", "cpu": "8"}, "only 'limits.nodes' is supported on static NodePools"),
        ("replicas", -1, "spec.replicas"),
    ):
        with pytest.raises(AssertionError) as refused:
            server({**static, "spec": {**static["spec"], key: value}})
        assert expected in str(refused.value)
    control_plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(static))
    elastic = {**static, "spec": {key: value for key, value in static["spec"].items() if key != "replicas"}}
    with pytest.raises(AssertionError) as kept:
        server(elastic)
    assert "Cannot transition NodePool between static" in str(kept.value)
    control_plane.kubectl("delete", "nodepool", static["metadata"]["name"])


def ordinary(document: Document) -> bool:
    """Not in the one namespace that allows privileged pods."""
    return document["metadata"].get("namespace") != f"{PREFIX}gpu-operator"


def has(document: Any, path: tuple[Any, ...]) -> bool:
    for key in path:
        try:
            document = document[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True
