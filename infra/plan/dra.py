"""GPUs allocated by claim (Dynamic Resource Allocation): NVIDIA's driver for it, and a workload's claim.

The driver is a release of its own beside the operator's. The operator can install it too, but only by a
GPUCluster, which excludes the ClusterPolicy that all other ways of sharing need, so the cluster could not
have both. One label keeps the two off each other's nodes: where it is "false", the operator does not run its
device plugin, and the driver runs only there. On such a node the operator still does discovery and
monitoring; its validator waits for the resource of a device plugin, so it does not become ready. Such a node
is proven by the devices that the driver offers on it, in its ResourceSlices.

Only what release 0.5 of the driver does without a feature gate: whole GPUs, and MIG slices that exist when it
starts. Slices cut for each claim (DynamicMIG), taints of unhealthy devices (NVMLDeviceHealthCheck) and
several claims on one GPU (MPSSupport, ConsumableShares) are alpha in that release, and left off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from infra import versions
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.gpu.choice import GpuNeed
from infra.model.pool.pool import Pool
from infra.model.workload import claims
from infra.model.workload.workload import Workload
from infra.plan import sharing, startup
from infra.plan.charts import ChartRelease, Values, plan_release
from infra.plan.manifest import Manifest, label_in, manifest, node_affinity

REQUEST = "gpu"
"""Name of the claim in a pod, and of the request in the claim."""
NAME = "dra-driver-nvidia-gpu"
"""Of the chart and the release."""
_DRIVER_OF_OPERATOR = "/run/nvidia/driver"
"""Where the operator's driver container shows its files on the node (chart values, nvidiaDriverRoot)."""


def release(env: Environment) -> ChartRelease | None:
    """The driver's chart, or ours with a stand-in for simulated nodes; None if no pool's GPUs are claimed.

    It runs in the operator's namespace, the only one that allows privileged pods. Without compute domains
    (GPUs of several nodes behind one NVLink fabric) it needs no controller, no webhook and no CRD.
    """
    pools = [pool for pool in env.pools if pool.by_claim]
    if not pools:
        return None
    values: Values = {
        # Confirms to the chart that no device plugin offers the same GPUs.
        "gpuResourcesEnabledOverride": True,
        "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}},
        "webhook": {"enabled": False},
        "nvidiaDriverRoot": _DRIVER_OF_OPERATOR if env.ownership.driver == "operator" else "/",
        "kubeletPlugin": _kubelet_plugin(env, pools),
    }
    chart, target = f"{versions.DRA_DRIVER_REPOSITORY}/{NAME}", (sharing.NAMESPACE, NAME)
    planned = plan_release(env, chart, None, versions.DRA_DRIVER, target, values, simulated="dra-driver-sim")
    # Compute domains are off, and the operator's chart has their CRDs, too.
    return replace(planned, skip_crds=True)


def _kubelet_plugin(env: Environment, pools: Sequence[Pool]) -> Manifest:
    """Where the driver's pods run.

    The driver lists GPUs and slices only when it starts. So where the MIG manager sets the layout, the pod
    requires its state "success": a change of layout removes the pod, which lists them anew when it is back.
    """
    plugin_values: Manifest = {
        "nodeSelector": {labels.DEPLOY_DEVICE_PLUGIN: "false"},
        "tolerations": [*sharing.tolerations(env, pools), *startup.tolerations(env, pools)],
    }
    mig_pools = [pool.name for pool in pools if sharing.mig_config_name(pool) is not None]
    if mig_pools and sharing.mig_parted_config_map(env) is not None:
        terms = [label_in(labels.MIG_CONFIG_STATE, ["success"])]
        if len(mig_pools) < len(pools):
            terms.append({"key": labels.POOL, "operator": "NotIn", "values": sorted(mig_pools)})
        plugin_values["affinity"] = node_affinity(*terms)
    return plugin_values


def _selectors(profile: str | None, need: GpuNeed | None) -> Iterator[str]:
    """CEL expressions that must all hold for a device; the attributes are those that the driver publishes."""
    attributes = f"device.attributes['{labels.GPU_DEVICE_CLASS}']"
    if profile is not None:
        yield f"{attributes}.profile == '{profile}'"
    if need and need.memory_gib:
        memory = f"device.capacity['{labels.GPU_DEVICE_CLASS}'].memory"
        yield f"{memory}.compareTo(quantity('{need.memory_gib}Gi')) >= 0"
    if need and need.compute:
        yield f"{attributes}.cudaComputeCapability.compareTo(semver('{need.compute}.0')) >= 0"
    if need and need.family:
        yield f"{attributes}.architecture == '{need.family.replace('-', ' ').title()}'"


def template_name(pool: Pool, workload: Workload) -> str:
    """Name of the claim template; it depends on the claim, because a template is immutable."""
    profile = claims.claimed_profile(pool, workload)
    kind = "gpu" if profile is None else profile.replace("+", ".")
    need = workload.gpu
    parts = [f"{need.memory_gib}gi" if need.memory_gib else "", need.compute, need.family] if need else []
    return "-".join([workload.name, str(workload.device_count), kind, *filter(None, parts)])


def claim_template(pool: Pool, workload: Workload, metadata: Manifest) -> Manifest:
    """ResourceClaimTemplate of the workload's pods; ``metadata`` is the workload's own."""
    profile = claims.claimed_profile(pool, workload)
    request: Manifest = {
        "deviceClassName": labels.GPU_DEVICE_CLASS if profile is None else labels.MIG_DEVICE_CLASS
    }
    selectors = list(_selectors(profile, workload.gpu))
    if selectors:
        request["selectors"] = [{"cel": {"expression": expression}} for expression in selectors]
    request |= {"allocationMode": "ExactCount", "count": workload.device_count}
    spec = {"spec": {"devices": {"requests": [{"name": REQUEST, "exactly": request}]}}}
    template_metadata = {**metadata, "name": template_name(pool, workload)}
    return manifest("ResourceClaimTemplate", template_metadata, "resource.k8s.io/v1", spec=spec)
