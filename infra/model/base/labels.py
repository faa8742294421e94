"""Every label, taint, annotation and resource key of the cluster, written once.

Only the policies and the checks of hosts repeat these keys, on purpose. Kubernetes and NVIDIA define their
own keys; ``gpuform.io/`` and ``simulator.gpuform.io/`` are ours.
"""

from __future__ import annotations

# Pulumi's Kubernetes provider: take over fields of other managers; do not wait until an object is ready, or a
# Job is done; how it is deleted.
PATCH_FORCE = "pulumi.com/patchForce"
SKIP_AWAIT = "pulumi.com/skipAwait"
WAIT_FOR = "pulumi.com/waitFor"
DELETION_PROPAGATION = "pulumi.com/deletionPropagationPolicy"

# Ours.
POOL = "gpuform.io/pool"
ENVIRONMENT = "gpuform.io/environment"
# On a notebook and its pod: its user.
USER = "gpuform.io/user"
# On nodes with GPUs that serve several owners who do not trust each other; a policy reads it.
TRUST = "gpuform.io/trust"
# The startup taint of GPU nodes; the gate's annotations, with its proof or what it waits for; the annotations
# with what such a node shall offer: in all, or per GPU if nodes of the pool differ in their number of GPUs.
GPU_NOT_READY = "gpuform.io/gpu-not-ready"
GPU_READY = "gpuform.io/gpu-ready"
GPU_WAITS_FOR = "gpuform.io/gpu-waits-for"
OFFERS = "gpuform.io/offers"
OFFERS_PER_GPU = "gpuform.io/offers-per-gpu"
# A node with a broken GPU: its taint, with the class of the fault as value, and its condition; annotations:
# what was done and why, and a person's note that it is repaired; on the loop's memory, permission to close
# its breaker; and the label of a ticket, with its state.
GPU_UNHEALTHY = "gpuform.io/gpu-unhealthy"
GPU_UNHEALTHY_CONDITION = "GpuUnhealthy"
GPU_HEALTH = "gpuform.io/gpu-health"
GPU_REPAIRED = "gpuform.io/gpu-repaired"
RESET_BREAKER = "gpuform.io/reset-breaker"
TICKET = "gpuform.io/ticket"
# On a namespace, with the value off: admission policies leave its pods alone.
ADMISSION = "gpuform.io/admission"
# Annotation of a node: the layout of a configuration name that the user chose and may later give to another.
MIG_LAYOUT = "gpuform.io/mig-layout"
# Blue-green: which of a workload's two Deployments a pod belongs to; annotations of each Deployment: the
# template that it was made of, and how many replicas it has when it is live. The latter also of a Deployment
# that an autoscaler may have had.
COLOUR = "gpuform.io/colour"
COLOURS = ("blue", "green")
TEMPLATE = "gpuform.io/template"
FULL = "gpuform.io/replicas"

# Annotation of the operands: vulnerabilities that an older operator or toolkit was accepted with.
ACKNOWLEDGED = "gpuform.io/acknowledged"
# On an InferenceService's pods, so that another format makes new ones.
MODEL_FORMAT = "gpuform.io/model-format"

# What the simulator and the kwok stages read from a simulated node.
KWOK_NODE = "kwok.x-k8s.io/node"
SIM_CPU = "simulator.gpuform.io/cpu"
SIM_MEMORY = "simulator.gpuform.io/memory"
SIM_MEMORY_CAPACITY = "simulator.gpuform.io/memory-capacity"
SIM_PODS = "simulator.gpuform.io/pods"
SIM_GPU = "simulator.gpuform.io/gpu"
SIM_GPU_MODEL = "simulator.gpuform.io/gpu-model"
SIM_GPU_COUNT = "simulator.gpuform.io/gpu-count"
SIM_GPU_RESET = "simulator.gpuform.io/gpu-reset"
SIM_HOST_DRIVER = "simulator.gpuform.io/host-driver"
SIM_CONTAINER_RUNTIME = "simulator.gpuform.io/container-runtime"
SIM_CDI = "simulator.gpuform.io/cdi"
SIM_DEFAULT_RUNTIME = "simulator.gpuform.io/default-runtime"
SIM_EFA = "simulator.gpuform.io/efa"
SIM_RDMA = "simulator.gpuform.io/rdma"
SIM_HUGE_PAGES = "simulator.gpuform.io/hugepages-2Mi"
SIM_UNHEALTHY = "simulator.gpuform.io/unhealthy"
SIM_FAULTS = "simulator.gpuform.io/faults"
SIM_MIG_LAYOUT = "simulator.gpuform.io/mig"
SIM_DEVICES = "simulator.gpuform.io/devices"

# Kubernetes.
HUGE_PAGES = "hugepages-2Mi"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
HOSTNAME = "kubernetes.io/hostname"
OS = "kubernetes.io/os"
ARCH = "kubernetes.io/arch"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
NODE_STATE = "node.kubernetes.io/"
"""Start of the taints that controllers set by the node's state."""
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
APP_NAME = "app.kubernetes.io/name"
MANAGED_BY = "app.kubernetes.io/managed-by"
PSA_ENFORCE = "pod-security.kubernetes.io/enforce"
PSA_WARN = "pod-security.kubernetes.io/warn"
PSA_AUDIT = "pod-security.kubernetes.io/audit"

# Kueue: the queue of a Job, Deployment or Pod. Its webhook copies a Deployment's to its pods.
QUEUE = "kueue.x-k8s.io/queue-name"
# On the pods themselves: that Kueue manages one, and, once it is admitted, its part of the workload.
QUEUE_MANAGED = "kueue.x-k8s.io/managed"
QUEUE_ADMITTED = "kueue.x-k8s.io/podset"
# On pods: how close their nodes are to each other, by the node label that is the value; or anywhere.
TOPOLOGY_REQUIRED = "kueue.x-k8s.io/podset-required-topology"
TOPOLOGY_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
TOPOLOGY_ANY = "kueue.x-k8s.io/podset-unconstrained-topology"
NAMESPACE_NAME = "kubernetes.io/metadata.name"

# NVIDIA: node labels that choose a configuration, and one that discovery sets.
DEVICE_PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
MIG_CONFIG = "nvidia.com/mig.config"
GPU_PRODUCT = "nvidia.com/gpu.product"
GPU_COUNT = "nvidia.com/gpu.count"
# What the MIG manager and GPU feature discovery report.
MIG_CONFIG_STATE = "nvidia.com/mig.config.state"
DRIVER_VERSION = "nvidia.com/cuda.driver-version.full"

# NVIDIA: resources. renameByDefault adds the suffix for shares of whole GPUs and of slices.
NVIDIA_PREFIX = "nvidia.com/"
NVIDIA_GPU = "nvidia.com/gpu"
NVIDIA_GPU_SHARED = "nvidia.com/gpu.shared"
NVIDIA_MIG_PREFIX = "nvidia.com/mig-"
SHARED = ".shared"

# NVIDIA: "false" keeps the operator's device plugin off a node; its DRA driver then offers the GPUs by claim:
# whole ones under a device class that is also the driver's name, MIG slices under another one. The operator
# removes such labels as long as a node shows no GPU, and discovery sets the label of the GPU only later: the
# node has to start with that label (PCI_PRESENT), too.
DEPLOY_DEVICE_PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
GPU_PRESENT = "nvidia.com/gpu.present"
PCI_PRESENT = "feature.node.kubernetes.io/pci-10de.present"
CPU_VENDOR = "feature.node.kubernetes.io/cpu-model.vendor_id"
GPU_DEVICE_CLASS = "gpu.nvidia.com"
MIG_DEVICE_CLASS = "mig.nvidia.com"

DRIVER_UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
DRIVER_UPGRADE_SKIP = "nvidia.com/gpu-driver-upgrade.skip"

# prometheus-operator and Grafana's sidecar: the labels that they select by.
RELEASE = "release"
GRAFANA_DASHBOARD = "grafana_dashboard"

# AWS: the resource of its EFA device plugin.
EFA = "vpc.amazonaws.com/efa"
# The prefix of resources of InfiniBand and RoCE adapters.
RDMA_PREFIX = "rdma/"
ADAPTERS = (EFA, RDMA_PREFIX)
"""Beginnings of the names of resources that are network adapters."""

# AWS: tags of subnets and security groups, by which load balancers and Karpenter find them.
ELB = "kubernetes.io/role/elb"
INTERNAL_ELB = "kubernetes.io/role/internal-elb"
KARPENTER_DISCOVERY = "karpenter.sh/discovery"

# Kubernetes and Karpenter, AWS: properties of an instance; the values of the last three are EC2's own.
ZONE = "topology.kubernetes.io/zone"
NODE_POOL = "karpenter.sh/nodepool"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
INSTANCE_GPU_NAME = "karpenter.k8s.aws/instance-gpu-name"
GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"
INSTANCE_GPU_COUNT = "karpenter.k8s.aws/instance-gpu-count"
INSTANCE_GPU_MEMORY = "karpenter.k8s.aws/instance-gpu-memory"

# Annotations of a pod, with values: Karpenter and cluster-autoscaler then do not remove its node.
KEPT = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}

# A taint that the cluster's own parts tolerate by convention: CoreDNS, the EBS CSI controller, Karpenter.
CRITICAL_ADDONS = "CriticalAddonsOnly"
