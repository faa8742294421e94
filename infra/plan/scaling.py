"""Scaling by requests: KEDA's release, and the objects that measure and scale an inference workload.

KEDA asks Prometheus for the requests per second and gives them to a HorizontalPodAutoscaler, which it makes
for each ScaledObject; from and to zero it changes the Deployment itself. So the Deployment is declared
without ``replicas``: an update would set back what KEDA has set.

An empty answer counts as an error (ignoreNullValues), not as no requests: if nothing is measured, the number
of pods stays.
"""

from __future__ import annotations

from infra import versions
from infra.model.base import labels
from infra.model.base.namespaces import KEDA
from infra.model.base.quantities import seconds
from infra.model.environment import Environment
from infra.model.platform.existing_prometheus import ExistingPrometheus
from infra.model.platform.monitoring import Monitoring
from infra.model.workload.serving import Scale
from infra.model.workload.workload import InferenceWorkload, Workload
from infra.plan import gpu_operator, scraping
from infra.plan.charts import ChartRelease, plan_release
from infra.plan.manifest import Manifest, manifest
from infra.plan.serving import METRICS, PORT

RELEASE = "keda"
MIN_WINDOW_S = 60
"""Of a rate: at least four scrapes, so that one that fails does not empty it."""


def release(env: Environment) -> ChartRelease | None:
    """KEDA's release, CRDs included; None if nothing is scaled, or if the cluster has it.

    By the chart's defaults its pods meet the Pod Security level restricted, and its webhook fails open
    (failurePolicy Ignore) [kedacore/charts, keda/values.yaml].
    """
    if not env.installs("keda"):
        return None
    values = {"tolerations": gpu_operator.system_tolerations(env)}
    return plan_release(env, "keda", versions.KEDA_REPOSITORY, versions.KEDA, (KEDA, RELEASE), values)


def objects(env: Environment, work: Workload, metadata: Manifest) -> tuple[Manifest, ...]:
    """What measures and scales the workload's Deployment; created after it and deleted before it."""
    if not isinstance(work, InferenceWorkload) or env.monitoring is None:
        return ()
    manifests = []
    if work.pod_metrics and env.monitoring.has_operator:
        manifests.append(pod_monitor(work, metadata, env.monitoring))
    if work.scale:
        theirs = env.monitoring.prometheus
        if theirs and theirs.is_authenticated:
            manifests.append(_authentication(theirs, metadata))
        manifests.append(_scaled_object(env, work, work.scale, metadata))
    return tuple(manifests)


def pod_monitor(work: InferenceWorkload, metadata: Manifest, monitoring: Monitoring) -> Manifest:
    assert work.pod_metrics is not None
    is_same_port = work.service and work.service.container_port == work.pod_metrics.port
    monitor_metadata = {**metadata, "labels": {**metadata["labels"], **monitoring.selected_by}}
    endpoint = {
        "port": PORT if is_same_port else METRICS,
        "path": work.pod_metrics.path,
        **scraping.scrape_times(monitoring),
    }
    spec = {
        "selector": {"matchLabels": {labels.APP_NAME: work.name}},
        "podMetricsEndpoints": [endpoint],
    }
    return manifest("PodMonitor", monitor_metadata, "monitoring.coreos.com/v1", spec=spec)


def _authentication(prometheus: ExistingPrometheus, metadata: Manifest) -> Manifest:
    """How KEDA's operator shows who it is: by a Secret of the workload's namespace, or by its own AWS role.

    Parameters and provider as in KEDA 2.20.2 [pkg/scalers/authentication/authentication_types.go,
    pkg/scalers/aws/aws_common.go]. Not a ClusterTriggerAuthentication: any namespace could then have KEDA
    send the credentials to an address of its choice.
    """
    spec: Manifest = {"podIdentity": {"provider": "aws"}}
    if prometheus.credentials:
        secret, keys = prometheus.credentials
        parameters = {key: "bearerToken" if key == "token" else key for key in keys}
        references = [{"parameter": parameters[key], "name": secret, "key": key} for key in keys]
        spec = {"secretTargetRef": references}
    return manifest("TriggerAuthentication", metadata, "keda.sh/v1alpha1", spec=spec)


def _scaled_object(env: Environment, work: InferenceWorkload, scale: Scale, metadata: Manifest) -> Manifest:
    assert env.monitoring is not None
    scale_down = {"stabilizationWindowSeconds": scale.cooldown_seconds}
    trigger = {
        "serverAddress": env.monitoring.address,
        "query": query(env, work),
        "threshold": f"{scale.qps_per_replica:.10g}",
        "ignoreNullValues": "false",
    }
    source: Manifest = {"type": "prometheus", "metricType": "AverageValue", "metadata": trigger}
    if (theirs := env.monitoring.prometheus) and theirs.is_authenticated:
        mode = "bearer" if theirs.token_secret else "basic"
        trigger |= {"awsRegion": theirs.sigv4.region} if theirs.sigv4 else {"authModes": mode}
        source["authenticationRef"] = {"name": metadata["name"]}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": work.deployment_name},
        "minReplicaCount": scale.min,
        "maxReplicaCount": scale.max,
        "cooldownPeriod": scale.cooldown_seconds,  # only of the last pod; the others follow the HPA
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": scale_down}}},
        "triggers": [source],
    }
    return manifest("ScaledObject", metadata, "keda.sh/v1alpha1", spec=spec)


def query(env: Environment, work: InferenceWorkload) -> str:
    """Requests per second of all pods, as PromQL; empty if they are not known."""
    if work.scale and work.scale.query:
        return work.scale.query
    return request_rate(env, work) if work.pod_metrics else ""


def request_rate(env: Environment, work: Workload) -> str:
    """Requests per second that Triton's pods of the workload have answered, as PromQL.

    A PodMonitor's job is its namespace and name [prometheus-operator, PodMonitorSpec.jobLabel].
    """
    assert env.monitoring is not None
    window = max(MIN_WINDOW_S, 4 * seconds(env.monitoring.interval))
    job = f"{work.namespace}/{work.name}"
    return f'sum(rate(nv_inference_request_success{{job="{job}"}}[{window}s]))'
