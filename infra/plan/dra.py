"""GPUs that are had by claim (Dynamic Resource Allocation): NVIDIA's driver for them, and a workload's claim.

The driver is a release of its own beside the operator's. The operator can bring it, too, but only by a
GPUCluster, which excludes the ClusterPolicy that all other ways of sharing need, and with it the cluster
could not have both. The two keep off each other's nodes by one label: the operator leaves its device plugin
away where it is "false", and the driver runs only there. What is left of the operator on such a node is
discovery and monitoring; its validator waits for the resource of a device plugin, so it does not get ready.
Such a node is proven by the devices that the driver offers on it, in its ResourceSlices.
"""

from __future__ import annotations

from typing import Any

from infra import versions
from infra.model import labels
from infra.model.environment import Environment
from infra.model.workload import Workload
from infra.plan import sharing, startup
from infra.plan.gpu_operator import ChartRelease

REQUEST = "gpu"
"""Name of the claim in a pod, and of the request in the claim."""

Manifest = dict[str, Any]


def release(env: Environment) -> ChartRelease | None:
    """The driver's chart; None where no pool's GPUs are claimed.

    It shares the operator's namespace, the only one whose pods may be privileged. Without compute domains
    (GPUs of several nodes behind one NVLink fabric) it needs no controller, no webhook and no CRD.
    """
    pools = [pool for pool in env.pools if pool.by_claim]
    if not pools:
        return None
    return ChartRelease(
        chart=f"{versions.DRA_DRIVER_REPOSITORY}/dra-driver-nvidia-gpu",
        repository=None,
        version=versions.DRA_DRIVER,
        namespace=sharing.NAMESPACE,
        name="dra-driver-nvidia-gpu",
        values={
            # The chart wants to hear that no device plugin hands out the same GPUs.
            "gpuResourcesEnabledOverride": True,
            "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}},
            "webhook": {"enabled": False},
            "nvidiaDriverRoot": "/",  # the node image's own driver
            "kubeletPlugin": {
                "nodeSelector": {labels.DEPLOY_DEVICE_PLUGIN: "false"},
                "tolerations": [*sharing.tolerations(env, pools), *startup.tolerations(env, pools)],
            },
        },
    )


def template_name(workload: Workload) -> str:
    """Name of the workload's template: a template cannot be changed, so another number is another one."""
    return f"{workload.name}-{workload.amount}-gpu"


def claim_template(workload: Workload, metadata: Manifest) -> Manifest:
    """What each pod of the workload claims; ``metadata`` is the workload's own."""
    asked = {"deviceClassName": labels.GPU_DEVICE_CLASS, "allocationMode": "ExactCount"}
    request = {"name": REQUEST, "exactly": {**asked, "count": workload.amount}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {**metadata, "name": template_name(workload)},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
