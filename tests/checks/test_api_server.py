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
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.paths import Paths
from infra import versions
from infra.model.base.namespaces import CERT_MANAGER
from infra.plan import karpenter_patches, sharing
from infra.strict_yaml import load_all
from lab.offline.charts import Charts
from lab.plane import monitoring
from lab.toolchain import Toolchain
from tests.build.environments import on
from tests.checks import everything
from tests.checks.charts import AT_HAND, OURS, crds_in, rendered, values_of
from tests.checks.everything import Document
from tests.conftest import Kubectl, Plane
from tests.dry_run import DryRun, dry_run
from tests.waiting import until

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
    kubectl("delete", "--wait=false", "-f", "-", input=needed)  # no other test has namespaces of these names


@pytest.fixture(scope="module")
def answers(server: Submit, control_plane: Plane) -> Iterator[DryRun]:
    """The same dry run, for one object at a time."""
    with dry_run(control_plane.kubeconfig) as made:
        yield made


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


@pytest.mark.usefixtures("server")
def test_patch_of_a_node_pool_keeps_what_others_set(control_plane: Plane) -> None:
    kubectl = control_plane.kubectl
    theirs = copy.deepcopy(next(item for item in every_object() if item["kind"] == "NodePool"))
    theirs["metadata"] = {"name": "inference"}
    theirs["spec"]["template"]["metadata"] = {"labels": {"team": "a"}}
    pool = {"name": "t4", "gpu": {"models": ["T4"], "count": 1}, "sharing": {"kind": "mps", "replicas": 2}}
    env = on(
        "existing",
        {**pool, "selector": {"karpenter.sh/nodepool": "inference"}},
        gpu_operator={"mode": "existing"},
    )
    (patch,) = karpenter_patches.patches(env).values()
    overlays = as_list(karpenter_patches.overlays(env))
    kubectl("apply", "--server-side", "--field-manager=team", "-f", "-", input=json.dumps(theirs))
    try:
        before = json.loads(kubectl("get", "nodepool", "inference", "-o", "json"))["spec"]
        kubectl("patch", "nodepool", "inference", "--type=merge", "-p", json.dumps(patch))
        kubectl("apply", "--server-side", "-f", "-", input=overlays)
        after = json.loads(kubectl("get", "nodepool", "inference", "-o", "json"))["spec"]
        ours = sharing.pool_labels(env, env.pools[0])
        assert after["template"]["metadata"].pop("labels") == {"team": "a", **ours}
        assert before["template"]["metadata"].pop("labels") == {"team": "a"}
        assert after == before
    finally:
        kubectl("delete", "nodepool", "inference")
        kubectl("delete", "--wait=true", "--ignore-not-found", "-f", "-", input=overlays)


def test_large_crds_are_applied_by_the_server(server: Submit, control_plane: Plane) -> None:
    """An object that the client applies carries itself as an annotation, of 256 KiB at most."""
    large = max(prometheus_operators_crds(), key=lambda item: len(json.dumps(item)))
    server(large, ours=False)
    with pytest.raises(AssertionError, match=r"metadata\.annotations: Too long"):
        control_plane.kubectl("apply", "--dry-run=server", "-f", "-", input=as_list([large]))


CONTAINER = ("spec", "template", "spec", "containers", 0)
SCALE_DOWN = ("spec", "advanced", "horizontalPodAutoscalerConfig", "behavior", "scaleDown")
GROUPS = ("spec", "resourceGroups")
# Kind, path, another value, and a part of the server's message.
BAD: list[tuple[str, tuple[Any, ...], Any, str]] = [
    ("Namespace", ("date",), {}, ".date: field not declared in schema"),
    ("Node", ("spec", "taints", 0, "effect"), "NoScheduling", "Unsupported value"),
    ("Node", ("metadata", "labels", "nvidia.com/mig.config"), "3g.20gb+2x2g.10gb", "valid label"),
    ("Deployment", (*CONTAINER, "resources", "limits", "nvidia.com/gpu.shared"), "0.5", "must be an integer"),
    ("Deployment", (*CONTAINER, "resources", "limits", "nvidia.com/mig-1g.5gb+me"), "1", "+me"),
    ("Deployment", (*CONTAINER, "resource"), {}, "field not declared in schema"),
    ("Deployment", (*CONTAINER, "securityContext"), {"privileged": True}, "violate PodSecurity"),
    ("Job", ("spec", "template", "spec", "tolerations", 0, "operator"), "Exist", "Unsupported value"),
    ("ClusterQueue", ("spec", "cohort"), "lab", "field not declared in schema"),
    ("ScaledObject", (*SCALE_DOWN, "stabilizationWindowSeconds"), 3601, "less than or equal to 3600"),
    ("TriggerAuthentication", ("spec", "podIdentity", "provider"), "amp", "Unsupported value"),
    ("TriggerAuthentication", ("spec", "secretTargetRef", 0, "secret"), "x", "field not declared in schema"),
    (
        "InferenceService",
        ("spec", "predictor", "model", "storageURI"),
        "s3://a",
        "field not declared in schema",
    ),
    ("ServingRuntime", ("spec", "containers", 0, "images"), "a:1", "field not declared in schema"),
    ("ClusterQueue", ("spec", "queueingStrategy"), "FIFO", "Unsupported value"),
    ("ClusterQueue", (*GROUPS, 0, "coveredResources"), ["a.b/c", "a.b/d"], "same number of resources"),
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
    answers: DryRun, kind: str, path: tuple[Any, ...], value: Any, expected: str
) -> None:
    good = next(
        item for item in every_object() if item["kind"] == kind and ordinary(item) and has(item, path[:-1])
    )
    bad = copy.deepcopy(good)
    place: Any = bad
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert answers.apply(good) == ""
    assert expected in answers.apply(bad)


def test_a_static_node_pool_stays_one(answers: DryRun, control_plane: Plane) -> None:
    pools = (item for item in every_object() if item["kind"] == "NodePool")
    static = next(pool for pool in pools if "replicas" in pool["spec"])
    for key, value, expected in (
        ("weight", 10, "'weight' is not supported on static NodePools"),
        ("limits", {"nodes": "3", "cpu": "8"}, "only 'limits.nodes' is supported on static NodePools"),
        ("replicas", -1, "spec.replicas"),
    ):
        assert expected in answers.apply({**static, "spec": {**static["spec"], key: value}})
    control_plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(static))
    elastic = {**static, "spec": {key: value for key, value in static["spec"].items() if key != "replicas"}}
    assert "Cannot transition NodePool between static" in answers.apply(elastic)
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


GROUP, RELEASE = "upgrade.example.com", "upgrade"
"""Of a copy of Karpenter's kind: other tests have objects of the real one on the same plane."""
KIND, FIELD, VALUE = "NodeOverlay", "weight", 7
"""The kind, and a field that only the newer version has."""
SPEC: Document = {"requirements": [], "capacity": {"example.com/gpu": "4"}}


def newer_and_earlier(crd: Document) -> tuple[Document, Document]:
    """The CRD in the other group, as pinned and without the field."""
    newer = copy.deepcopy(crd)
    newer["spec"]["group"] = GROUP
    newer["metadata"]["name"] = f"{newer['spec']['names']['plural']}.{GROUP}"
    newer["metadata"].pop("creationTimestamp", None)
    earlier = copy.deepcopy(newer)
    for version in earlier["spec"]["versions"]:
        properties = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        assert properties.pop(FIELD, None), f"{FIELD} is not in the pinned CRD"
    return newer, earlier


@pytest.fixture
def install(control_plane: Plane, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Installs a chart with the CRD among its templates, "0.1.0" without the field or "0.2.0" with it."""
    pinned = crds_of("karpenter-crd", versions.KARPENTER, control_plane)
    newer, earlier = newer_and_earlier(next(one for one in pinned if one["spec"]["names"]["kind"] == KIND))
    helm = [str(control_plane.toolchain.path("helm")), "--kubeconfig", str(control_plane.kubeconfig)]

    def install(version: str) -> None:
        text = yaml.safe_dump(earlier if version == "0.1.0" else newer).replace("{{", '{{ "{{" }}')
        (tmp_path / "templates").mkdir(exist_ok=True)
        (tmp_path / "templates/crd.yaml").write_text(text)
        about = {"apiVersion": "v2", "name": "crds", "version": version}
        (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(about))
        command = [*helm, "upgrade", "--install", RELEASE, str(tmp_path), "--wait"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        established = ("--for=condition=Established", "--timeout=60s", "crd", newer["metadata"]["name"])
        control_plane.kubectl("wait", *established)

    yield install
    subprocess.run([*helm, "uninstall", RELEASE, "--wait"], capture_output=True, timeout=120, check=True)


@pytest.mark.nightly
def test_a_newer_crd_comes_under_live_objects_and_an_older_one_prunes_them(
    kubectl: Kubectl, install: Callable[[str], None]
) -> None:
    """The last part is why gpuform.stack.preflight refuses an older chart: the API server does not."""
    plural = f"{KIND.lower()}s.{GROUP}"
    made = {"apiVersion": f"{GROUP}/v1alpha1", "kind": KIND, "metadata": {"name": "live"}, "spec": SPEC}
    more = {**made, "spec": {**SPEC, FIELD: VALUE}}

    def live() -> Document:
        found: Document = json.loads(kubectl("get", plural, "live", "-o", "json"))
        return found

    def apply(one: Document) -> None:
        kubectl("apply", "--server-side", "--validate=strict", "-f", "-", input=as_list([one]))

    def accepted() -> bool:
        try:
            apply(more)
        except AssertionError:
            return False
        return True

    def pruned() -> bool:
        kubectl("label", plural, "live", f"touched={live()['metadata']['resourceVersion']}", "--overwrite")
        return FIELD not in live()["spec"]

    install("0.1.0")
    apply(made)
    before = live()
    with pytest.raises(AssertionError, match=f'field "?.*{FIELD}|{FIELD}: field not declared'):
        apply(more)

    install("0.2.0")
    assert live()["metadata"]["uid"] == before["metadata"]["uid"]
    assert live()["spec"] == before["spec"]
    until(accepted, what="the API server serves the newer version")
    assert live()["spec"][FIELD] == VALUE

    install("0.1.0")
    until(pruned, what="the field is gone")
    assert live()["metadata"]["uid"] == before["metadata"]["uid"]
