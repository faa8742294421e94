"""KServe's own charts, controller and webhooks, with certificates from cert-manager's own controllers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra import versions
from lab.offline.charts import Charts
from lab.toolchain import Toolchain
from tests.lab.plane.conftest import OwnControlPlane, removed
from tests.lab.sidecars.controllers.conftest import GPU, Queues
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

KSERVE, CERTIFICATES = "gpuform-kserve", "gpuform-cert-manager"
PROGRAMS = ("kserve", "cert-manager", "cert-manager-cainjector", "cert-manager-webhook")
API = "serving.kserve.io"
OPEN = {"cpu": "", "memory": ""}
MODE: Any = {"deploymentMode": "Standard", "gateway": {"disableIngressCreation": True}}
VALUES = {"controller": MODE, "inferenceservice": {"resources": {"limits": OPEN, "requests": OPEN}}}


def made(version: str, kind: str, name: str, spec: Any) -> dict[str, Any]:
    marks = {f"{API}/deploymentMode": "Standard", f"{API}/autoscalerClass": "external"}
    meta = {"name": name, "namespace": "default", "annotations": marks}
    return {"apiVersion": f"{API}/{version}", "kind": kind, "metadata": meta, "spec": spec}


def model(**predictor: Any) -> dict[str, Any]:
    asks = {"limits": {GPU: 1}, "requests": {GPU: 1}}
    spec = {"modelFormat": FORMAT, "runtime": "triton", "storageUri": "s3://a", "resources": asks}
    spec = {"tolerations": [{"operator": "Exists"}], "model": spec, **predictor}
    return made("v1beta1", "InferenceService", "a", {"predictor": spec})


FORMAT = {"name": "onnx"}
TRITON = {"containers": [{"name": "kserve-container", "image": "t:1"}], "supportedModelFormats": [FORMAT]}
RUNTIME = made("v1alpha1", "ServingRuntime", "triton", TRITON)


class Serving(Queues):
    def release(self, name: str, chart: str, version: str, namespace: str, values: Any, *more: str) -> None:
        """Install or upgrade; waits, unless told otherwise, as Pulumi's Release does."""
        paths = self.cluster.paths
        folder = Charts(paths.root, paths.cache, self.cluster.state / "charts").folder(chart, version)
        given = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
        given += ["--timeout=90s", *(more or ["--wait"])]
        self.helm("upgrade", "--install", name, str(folder), "-n", namespace, "--create-namespace", *given)

    def certificates(self, issuing: int) -> None:
        """cert-manager with that number of replicas of the controller that issues certificates."""
        lock = {"leaderElection": {"namespace": CERTIFICATES}}
        given = {"crds": {"enabled": True}, "replicaCount": issuing, "global": lock}
        self.release("cert-manager", "cert-manager", versions.CERT_MANAGER, CERTIFICATES, given)

    def kserve(self, *more: str) -> None:
        """Its CRDs and its controller; one CRD is marked, for the chart deletes it with each upgrade."""
        self.release("kserve-crd", "kserve-crd", f"v{versions.KSERVE}", KSERVE, {})
        mark = (f"crd/clusterstoragecontainers.{API}", "helm.sh/resource-policy=keep")
        self.kubectl("annotate", "--overwrite", *mark)
        self.release("kserve", "kserve-resources", f"v{versions.KSERVE}", KSERVE, {"kserve": VALUES}, *more)

    def serves(self, pods: int) -> None:
        """Until the InferenceService is ready with that number of pods."""
        until(lambda: len(self.pods()) == pods, what=lambda: self.kubectl("get", "pods,isvc", "-o", "yaml"))
        self.kubectl("wait", "isvc/a", "--for=condition=Ready", "--timeout=30s")

    def pods(self) -> list[dict[str, Any]]:
        return self.items("pods", "default", "-l", f"{API}/inferenceservice=a")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Iterator[Serving]:
    with removed(OwnControlPlane(tmp_path_factory.mktemp("kserve"), toolchain)) as cluster:
        cluster.plane.start_with_controllers(*PROGRAMS)
        site = Serving(cluster)
        site.node("cpu-0")
        site.operator()
        site.offers(site.node("gpu-0", "1eb8", 4), {"gpu": 4})
        yield site


def test_nothing_is_admitted_without_the_certificate_that_cert_manager_issues(serving: Serving) -> None:
    serving.certificates(issuing=0)
    serving.kserve("--wait=false")
    with pytest.raises(AssertionError, match="failed calling webhook"):
        serving.apply(RUNTIME)
    assert "kserve" not in serving.cluster.pids(), "it waits for its certificate as a pod does"
    serving.certificates(issuing=1)
    serving.kserve()
    serving.apply(RUNTIME)


def test_a_model_is_served_on_a_gpu_and_nothing_of_it_stays(serving: Serving) -> None:
    with pytest.raises(AssertionError, match="denied the request"):
        serving.apply(model(minReplicas=-1))
    serving.apply(model())
    serving.serves(pods=1)
    (pod,) = serving.pods()
    assert pod["spec"]["nodeName"] == "gpu-0"
    assert [init_container["name"] for init_container in pod["spec"]["initContainers"]] == [
        "storage-initializer"
    ]
    assert serving.get("inferenceservice", "a")["metadata"]["annotations"]["modelFormat"] == "onnx"
    assert serving.get("service", "a-predictor")
    serving.kubectl("scale", "deployment", "a-predictor", "--replicas=3")
    serving.serves(pods=3)
    serving.apply(model(labels={"told": "again"}))
    until(
        lambda: "told" in serving.get("deployment", "a-predictor")["spec"]["template"]["metadata"]["labels"]
    )
    assert serving.get("deployment", "a-predictor")["spec"]["replicas"] == 3
    serving.kubectl("delete", "inferenceservice", "a")
    until(lambda: not serving.pods() and "a-predictor" not in serving.kubectl("get", "deployments,services"))


def test_it_is_removed_and_installed_again(serving: Serving) -> None:
    for name, namespace in (("kserve", KSERVE), ("kserve-crd", KSERVE), ("cert-manager", CERTIFICATES)):
        serving.helm("uninstall", name, "-n", namespace, "--wait")
    until(lambda: not {*PROGRAMS} & {*serving.cluster.pids()}, what="programs run without their releases")
    serving.certificates(issuing=1)
    serving.kserve()
    serving.apply(RUNTIME, model())
    serving.serves(pods=1)
    serving.helm("uninstall", "kserve", "-n", KSERVE, "--wait")
    serving.kubectl("delete", "inferenceservice", "a", "--wait=false")
    assert serving.pods(), "a finalizer keeps it until the controller is back"
    serving.kserve()
    until(lambda: not serving.pods(), what="its pods stay")
