"""Four pods per GPU on the existing nodes with the label gpu=t4: five components, and no environment file."""

import pulumi
import pulumi_kubernetes as kubernetes

from components.custom_resources import PoolNodesArgs
from components.node_pools import NodePools, NodePoolsArgs
from components.objects import GpuSharing, GpuSharingArgs, ManifestsArgs, Namespaces
from components.releases import GpuOperator, ReleaseArgs
from components.workloads import GpuDeployment, WorkloadArgs
from infra.plan.charts import ChartRelease

OPERATOR, WORK = "gpu-operator", "inference"
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
GPUS = {"nvidia.com/gpu.shared": "1"}
SLICING = """
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]
"""

config = pulumi.Config()
kubeconfig = config.require("kubeconfig")
provider = kubernetes.Provider("cluster", kubeconfig=kubeconfig)


def after(*parts: pulumi.Resource) -> pulumi.ResourceOptions:
    """Options of a component that needs ``parts``."""
    return pulumi.ResourceOptions(providers={"kubernetes": provider}, depends_on=parts)


def metadata(name: str, namespace: str | None = None, **labels: str) -> dict[str, object]:
    """Metadata of an object."""
    return {"name": name, "labels": labels, **({"namespace": namespace} if namespace else {})}


levels = {OPERATOR: "privileged", WORK: "restricted"}  # Pod Security
spaces = [
    {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": metadata(name, **{"pod-security.kubernetes.io/enforce": level}),
    }
    for name, level in levels.items()
]
namespaces = Namespaces("namespaces", ManifestsArgs(manifests=spaces), after())

sharing = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": metadata("time-slicing-4", OPERATOR),  # another content needs another name
    "data": {"default": "version: v1\n", "four": SLICING},
}
shared = GpuSharing("sharing", GpuSharingArgs(device_plugin=sharing), after(namespaces))

t4 = PoolNodesArgs(
    kubeconfig=kubeconfig,
    selector="gpu=t4",
    labels={"nvidia.com/device-plugin.config": "four"},
    taints=[TAINT],
)
pools = NodePools("pools", NodePoolsArgs(pools={"t4": t4}), after(shared))

operator = ChartRelease(
    chart="gpu-operator",
    repository="https://helm.ngc.nvidia.com/nvidia",
    version="v26.7.1",
    namespace=OPERATOR,
    name="gpu-operator",
    values={
        "devicePlugin": {"config": {"name": "time-slicing-4", "default": "default"}},
        "operator": {"upgradeCRD": True},
        # Else the toolkit writes a drop-in of a newer version than containerd's own file may have.
        "toolkit": {"env": [{"name": "RUNTIME_CONFIG_SOURCE", "value": "file"}]},
    },
)
installed = GpuOperator("gpu-operator", ReleaseArgs(release=operator), after(pools))

pod = {
    "containers": [
        {
            "name": "triton",
            "image": "nvcr.io/nvidia/tritonserver:25.10-py3",
            "resources": {"requests": GPUS, "limits": GPUS},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "tolerations": [{**TAINT, "operator": "Equal"}],
}
deployment = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": metadata("triton", WORK),
    "spec": {
        "replicas": 4,
        "selector": {"matchLabels": {"app": "triton"}},
        "template": {"metadata": {"labels": {"app": "triton"}}, "spec": pod},
    },
}
triton = GpuDeployment("triton", WorkloadArgs(controller=deployment, minutes=(30, 30)), after(installed))
pulumi.export("asks", triton.asks)
