"""Keys and type tokens that the rules check, repeated here on purpose."""

from __future__ import annotations

POOL = "gpuform.io/pool"
ENVIRONMENT = "gpuform.io/environment"
TRUST = "gpuform.io/trust"
ACKNOWLEDGED = "gpuform.io/acknowledged"
GPU = "nvidia.com/gpu"
ONLY = "GPUFORM_ONLY"  # variable of runs on nodes alone: a GitOps controller applies the ConfigMaps
GPU_NOT_READY = "gpuform.io/gpu-not-ready"
DEVICE_PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
DEPLOY_DEVICE_PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
MIG_CONFIG = "nvidia.com/mig.config"
MIG_STANDARD = ("all-disabled", "all-enabled")
CAPACITY_TYPE = "karpenter.sh/capacity-type"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
QUEUE = "kueue.x-k8s.io/queue-name"
OPERATOR_NAMESPACES = ("gpu-operator", "nvidia-network-operator")
HEALTH_NAMESPACE = "gpuform-health"
NODE_MONITORING = "eks-node-monitoring-agent"
SYSTEM_NAMESPACES = ("kube-system", *OPERATOR_NAMESPACES)

NODE_POOL = "kubernetes:karpenter.sh/v1:NodePool"
NODE_CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
LOCAL_QUEUE = "kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue"
RELEASE = "kubernetes:helm.sh/v3:Release"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
NAMESPACE = "kubernetes:core/v1:Namespace"
NODE = "kubernetes:core/v1:Node"
HOSTS = "gpuform:hosts:HostConfiguration"
BUDGET = "kubernetes:policy/v1:PodDisruptionBudget"
POOL_NODES = "gpuform:nodes:PoolNodes"
SIMULATED_NODES = "gpuform:nodes:SimulatedNodes"
MIG_LAYOUT = "gpuform:nodes:MigLayout"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
ADD_ON = "aws:eks/addon:Addon"
LAUNCH_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
CLUSTER = "aws:eks/cluster:Cluster"
CRON_JOB = "kubernetes:batch/v1:CronJob"
INFERENCE = "kubernetes:serving.kserve.io/v1beta1:InferenceService"
BLUE_GREEN = "gpuform:workloads:BlueGreen"
OPENSTACK = "pulumi:providers:openstack"
MAGNUM_CLUSTER = "openstack:containerinfra/cluster:Cluster"
MAGNUM_GROUP = "openstack:containerinfra/nodeGroup:NodeGroup"
REPLACEMENT_GUARD = "gpuform:openstack:ReplacementGuard"
AUTOSCALERS = (
    *(
        f"kubernetes:autoscaling/{version}:HorizontalPodAutoscaler"
        for version in ("v2", "v2beta1", "v2beta2")
    ),
    "kubernetes:keda.sh/v1alpha1:ScaledObject",
    "kubernetes:keda.sh/v1alpha1:ScaledJob",
    INFERENCE,
)
PODS = (
    "kubernetes:core/v1:Pod",
    "kubernetes:apps/v1:Deployment",
    "kubernetes:apps/v1:StatefulSet",
    "kubernetes:apps/v1:DaemonSet",
    "kubernetes:batch/v1:Job",
    CRON_JOB,
    BLUE_GREEN,
    INFERENCE,
)
