from __future__ import annotations

import pytest

from tests.components.recording import Recorder, record
from tests.config.tables import GOOD, SERVED

pytestmark = pytest.mark.unit

RELEASE = "kubernetes:helm.sh/v3:Release"
SERVICE = "kubernetes:serving.kserve.io/v1beta1:InferenceService"
SCALED = "kubernetes:keda.sh/v1alpha1:ScaledObject"


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    return record(GOOD["scaling"])


def test_keda_comes_before_what_it_scales_and_outlives_it(recorded: Recorder) -> None:
    """Its operator removes the finalizer of a ScaledObject."""
    (scaled,) = recorded.of(SCALED)
    assert {
        f"{RELEASE} scaling-release",
        "kubernetes:apps/v1:Deployment workloads-default-triton",
    } <= scaled.after
    # Of its own, not of its parent: the parent stays when only scale is removed, and then orders nothing.
    assert [urn for urn in scaled.request.dependencies if urn.endswith("::scaling-release")]
    (release,) = [one for one in recorded.of(RELEASE) if one.name == "scaling-release"]
    assert "kubernetes:core/v1:Namespace namespaces-gpuform-keda" in release.after
    assert (release.inputs["chart"], release.inputs["atomic"]) == ("keda", True)


def test_preview_and_up_register_the_same_resources(recorded: Recorder) -> None:
    assert record(GOOD["scaling"], preview=True).registered() == recorded.registered()


def test_without_scale_there_is_no_keda() -> None:
    works = [{key: one[key] for key in one if key != "scale"} for one in GOOD["scaling"]["workloads"]]
    assert not [
        one for one in record({**GOOD["scaling"], "workloads": works}).resources if "scaling" in one.name
    ]


def test_kserve_comes_before_what_it_serves_and_outlives_it() -> None:
    """Its controller removes an InferenceService's finalizer; its webhooks need a certificate."""
    recorded = record(SERVED)
    assert record(SERVED, preview=True).registered() == recorded.registered()
    (service,), (scaled,) = recorded.of(SERVICE), recorded.of(SCALED)
    runtime = "kubernetes:serving.kserve.io/v1alpha1:ServingRuntime workloads-default-triton-runtime"
    assert {f"{RELEASE} kserve-kserve", runtime} <= service.after
    assert [urn for urn in service.request.dependencies if urn.endswith("::kserve-kserve")]
    assert f"{SERVICE} workloads-default-triton" in scaled.after
    assert service.request.customTimeouts.create == "62m"
    assert list(service.request.ignoreChanges) == [], "KServe owns the number of pods"
    after = {one.name: one.after for one in recorded.of(RELEASE)}
    assert {f"{RELEASE} kserve-kserve-crd", f"{RELEASE} kserve-cert-manager"} <= after["kserve-kserve"]
    assert "kubernetes:core/v1:Namespace namespaces-gpuform-kserve" in after["kserve-kserve"]
    (kept,) = recorded.of("kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinitionPatch")
    assert kept.inputs["metadata"] == {
        "name": "clusterstoragecontainers.serving.kserve.io",
        "annotations": {"helm.sh/resource-policy": "keep"},
    }, "an upgrade of the chart deletes it otherwise"
    assert f"{RELEASE} kserve-kserve-crd" in kept.after
    assert not [one for one in record(GOOD["scaling"]).resources if "kserve" in one.name]
