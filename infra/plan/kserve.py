"""KServe's releases, and the InferenceService and the runtime of a workload with a model.

In its Standard mode KServe makes a Deployment and a Service ``NAME-predictor`` for an InferenceService, and
copies labels and annotations to both and to the pods. Its charts bring no runtime for Triton by default.
"""

from __future__ import annotations

from typing import Any

from infra import versions
from infra.model.base import labels
from infra.model.base.namespaces import CERT_MANAGER, KSERVE
from infra.model.environment import Environment
from infra.model.workload.serving import FORMATS, MODEL_MOUNT, ServedModel
from infra.model.workload.workload import InferenceWorkload
from infra.plan import gpu_operator
from infra.plan.charts import ChartRelease, plan_release
from infra.plan.manifest import Manifest, manifest

API = "serving.kserve.io"
CRDS = "kserve-crd"
"""Release of KServe's CRDs."""
KEPT_KIND, KEPT_CRD = "ClusterStorageContainer", f"clusterstoragecontainers.{API}"
"""CRD that an upgrade of the chart would delete: its template omits the CRD if it exists."""


def releases(env: Environment) -> tuple[ChartRelease, ...]:
    """In the order of installation: cert-manager, KServe's CRDs, its controller; none if not installed."""
    if not env.installs("kserve"):
        return ()
    charts, version = versions.KSERVE_REPOSITORY, f"v{versions.KSERVE}"
    tolerations = gpu_operator.system_tolerations(env)
    planned = [
        plan_release(env, f"{charts}/kserve-crd", None, version, (KSERVE, CRDS), {}),
        plan_release(
            env, f"{charts}/kserve-resources", None, version, (KSERVE, "kserve"), _values(tolerations)
        ),
    ]
    if env.installs("cert-manager"):
        components = ("webhook", "cainjector", "startupapicheck")
        values = {
            "crds": {"enabled": True},  # kept when the release goes: others may use them
            "global": {"leaderElection": {"namespace": CERT_MANAGER}},  # instead of kube-system
            "tolerations": tolerations,
            **{part: {"tolerations": tolerations} for part in components},
        }
        repository, place = versions.CERT_MANAGER_REPOSITORY, (CERT_MANAGER, "cert-manager")
        planned.insert(0, plan_release(env, place[1], repository, versions.CERT_MANAGER, place, values))
    return tuple(planned)


def _values(tolerations: list[Any]) -> Manifest:
    """Standard mode without Knative and Ingress; addresses are those of the cluster's own DNS.

    With the chart's template for them, a name and its namespace would share the 63 characters of one label.
    Its defaults for containers are emptied: it would add a limit of one CPU to pods that declare none.
    """
    gateway = {
        "disableIngressCreation": True,
        "domain": "svc.cluster.local",
        "domainTemplate": "{{ .Name }}.{{ .Namespace }}.{{ .IngressDomain }}",
    }
    no_resources = {"cpu": "", "memory": ""}
    return {
        "kserve": {
            "controller": {"deploymentMode": "Standard", "gateway": gateway, "tolerations": tolerations},
            "inferenceservice": {"resources": {"limits": no_resources, "requests": no_resources}},
        }
    }


def runtime(env: Environment, work: InferenceWorkload, metadata: Manifest) -> Manifest:
    """A ServingRuntime for Triton; what its container needs besides is in the InferenceService."""
    annotations = {f"{API}/server-type": "tritonserver"}
    spec = {
        "containers": [{"name": "kserve-container", "image": env.image(work.image)}],
        "protocolVersions": ["v2", "grpc-v2"],
        "supportedModelFormats": [{"name": name, "autoSelect": False} for name in FORMATS],
    }
    runtime_metadata = {**metadata, "name": _runtime_name(work), "annotations": annotations}
    return manifest("ServingRuntime", runtime_metadata, f"{API}/v1alpha1", spec=spec)


def inference_service(work: InferenceWorkload, model: ServedModel, deployment: Manifest) -> Manifest:
    """From the Deployment that the workload would have without a model: its pods are the predictor's.

    Its observedGeneration is that of KServe's Deployment, so each change here must change the Deployment,
    too, or an update would wait for it in vain [inference_service_status.go, PropagateRawStatus].
    """
    metadata, spec = deployment["metadata"], deployment["spec"]
    pod_metadata, pod = spec["template"]["metadata"], dict(spec["template"]["spec"])
    (container,) = pod.pop("containers")
    if model.service_account:
        pod["serviceAccountName"] = model.service_account
    if "strategy" in spec:
        pod["deploymentStrategy"] = spec["strategy"]
    replicas = spec.get("replicas")
    if replicas is not None:
        pod |= {"minReplicas": replicas, "maxReplicas": replicas}
    annotations = {
        # external: KServe leaves the number alone; none: it sets minReplicas, without an autoscaler.
        f"{API}/autoscalerClass": "external" if replicas is None else "none",
        f"{API}/deploymentMode": "Standard",
        "modelFormat": model.format,  # as its webhook would add it
        labels.WAIT_FOR: "condition=Ready",
        **metadata.get("annotations", {}),
    }
    predictor = {
        **pod,
        "labels": pod_metadata["labels"],
        "annotations": {**pod_metadata.get("annotations", {}), labels.MODEL_FORMAT: model.format},
        "model": {
            **_triton_args(work),
            **{key: value for key, value in container.items() if key != "name"},
            "modelFormat": {"name": model.format},
            "protocolVersion": "v2",
            "runtime": _runtime_name(work),
            "storageUri": model.uri,
        },
    }
    annotated = {**metadata, "annotations": annotations}
    return manifest("InferenceService", annotated, f"{API}/v1beta1", spec={"predictor": predictor})


def _triton_args(work: InferenceWorkload) -> Manifest:
    """Triton's arguments, unless the workload has a command."""
    if work.command or work.service is None:
        return {}
    metrics = f"--metrics-port={work.pod_metrics.port}" if work.pod_metrics else "--allow-metrics=false"
    port_args = f"--http-port={work.service.container_port}", "--allow-grpc=false"
    return {"args": ["tritonserver", f"--model-repository={MODEL_MOUNT}", *port_args, metrics]}


def _runtime_name(work: InferenceWorkload) -> str:
    """Not the workload's own name: KServe knows some names, and changes the images of those runtimes."""
    return f"{work.name}-triton"
