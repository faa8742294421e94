"""Every pinned version, one per line, with the source of newer ones.

Pins are changed only here; the Go modules under ``toolchain/`` repeat theirs in a go.mod, and a test compares
the two.
"""

PULUMI = "3.256.0"  # github.com/pulumi/pulumi/releases; pyproject.toml pins the SDK to the same version
KUBERNETES = "1.36.3"  # kubernetes.io/releases
ETCD = "3.6.14"  # github.com/etcd-io/etcd/releases
KWOK = "0.8.0"  # github.com/kubernetes-sigs/kwok/releases
HELM = "3.19.0"  # github.com/helm/helm/releases
# The newest source of the provider available as a Go module; pyproject.toml pins its SDK, 4.34.2.
PULUMI_KUBERNETES_MODULE = "4.0.0-20260115033456-f47bc2d6f199"  # proxy: pulumi-kubernetes/provider/v4
# The Terraform provider in the official OpenStack provider and in ours: pulumi-openstack, provider/go.mod
OPENSTACK_PROVIDER = "3.4.0"
PROMETHEUS = "3.15.0"  # github.com/prometheus/prometheus/releases
PROMETHEUS_MODULE = "0.315.0"  # the same release: a Go module needs /v3 in its path to be numbered 3
KUBE_STATE_METRICS = "2.18.0"  # github.com/kubernetes/kube-state-metrics/releases
# The newest available as a Go module; kube-prometheus-stack's chart brings newer ones of the same API.
PROMETHEUS_OPERATOR_CRDS = "0.92.0"  # github.com/prometheus-operator/prometheus-operator/releases
GO = "1.26.6"  # go.dev/dl: the lowest version that builds the toolchain

GPU_OPERATOR = "v26.7.1"  # github.com/NVIDIA/gpu-operator/releases
GPU_DRIVER = "595.91.07"  # gpu-operator values.yaml, driver.version
CONTAINER_TOOLKIT = "1.20.2"  # gpu-operator values.yaml, toolkit.version
DEVICE_PLUGIN = "0.20.1"  # gpu-operator values.yaml, devicePlugin.version
DEVICE_PLUGIN_REPOSITORY = (
    "https://nvidia.github.io/k8s-device-plugin"  # its chart, README, deployment via helm
)
GPU_OPERATOR_REPOSITORY = "https://helm.ngc.nvidia.com/nvidia"  # NVIDIA's chart repository
NETWORK_OPERATOR = "v26.4.1"  # github.com/Mellanox/network-operator/releases; the chart has no v
DRA_DRIVER = "0.5.0"  # gpu-operator values.yaml, draDriver.version
DRA_DRIVER_REPOSITORY = "oci://registry.k8s.io/dra-driver-nvidia/charts"  # its documentation, install
GPU_DRIVER_OF_BRANCH = {580: "580.178.04"}  # gpu-operator platform support: R580 is the last branch for Volta
HOST_CONTAINER_TOOLKIT = "1.19.1"  # github.com/NVIDIA/nvidia-container-toolkit/releases; on own hosts

# The readiness gate's image; the digest is that of the index of all platforms:
# github.com/docker-library/repo-info, repos/python/remote/3.13.15-alpine3.24.md
READINESS_GATE_IMAGE = (
    "docker.io/library/python:3.13.15-alpine3.24"
    "@sha256:79e7a9b9ff1cbceff819f856fb374477792a5967759d94df266de7b7b4120e6f"
)

# Images of notebooks, by tag: their digests are stated only by the registries.
JUPYTERLAB_IMAGE = (  # github.com/jupyter/docker-stacks/wiki; the CUDA 12 variant runs from driver 525 on
    "quay.io/jupyter/pytorch-notebook:cuda12-2026-08-03"
)
CODE_SERVER_IMAGE = "docker.io/codercom/code-server:4.123.0"  # github.com/coder/code-server/releases

KEDA = "2.20.2"  # github.com/kedacore/charts; the Go module has the same version
KUEUE = "0.19.2"  # github.com/kubernetes-sigs/kueue/releases; chart and CRDs are in its Go module
# The newest version with available source. Its chart's version and image tags have the prefix v.
KSERVE = "0.17.0"  # github.com/kserve/kserve/releases; charts and CRDs are in its Go module
CERT_MANAGER = "v1.21.2"  # github.com/cert-manager/cert-manager/releases; the chart has the same version
KUBE_PROMETHEUS_STACK = "88.5.3"  # github.com/prometheus-community/helm-charts, charts/kube-prometheus-stack
KUBE_PROMETHEUS_STACK_REPOSITORY = "https://prometheus-community.github.io/helm-charts"
DCGM_EXPORTER_CHART = "4.8.3"  # github.com/NVIDIA/dcgm-exporter/releases; used without the operator
DCGM_EXPORTER_REPOSITORY = "https://nvidia.github.io/dcgm-exporter/helm-charts"  # its README, quickstart
BUSYBOX = "1.37.0"  # hub.docker.com/_/busybox; the chart's CRD upgrade copies files with it

# The second scheduler: registry.k8s.io/kube-scheduler; the newest available of each minor version.
# It may not be newer than the API server's minor version (kubernetes.io/releases/version-skew-policy).
# By tag alone: only the registry states their digests, and no source that can be quoted here has these.
# They are signed (kubernetes.io, "Verify Signed Kubernetes Artifacts"): an admission policy can check that.
KUBE_SCHEDULER = {
    "1.32": "1.32.13",
    "1.33": "1.33.13",
    "1.34": "1.34.10",
    "1.35": "1.35.4",
    "1.36": "1.36.3",
    "1.37": "1.37.2",
}
KUBE_SCHEDULER_IMAGE = "registry.k8s.io/kube-scheduler"
# The image of placeholder pods; the digest is that of the index of all platforms.
PAUSE_IMAGE = (
    "registry.k8s.io/pause:3.10@sha256:ee6521f290b2168b6e0935a181d4cff9be1ac3f505666ef0e3c98fae8199917a"
)

# Not 1.15.0: with it, pods that a full reservation has no place for wait, and get no on-demand or spot node.
KARPENTER = "1.14.3"  # github.com/aws/karpenter-provider-aws/releases; chart and CRD chart have its version
KARPENTER_REPOSITORY = "oci://public.ecr.aws/karpenter"  # karpenter.sh, getting started
KEDA_REPOSITORY = "https://kedacore.github.io/charts"  # keda.sh, deploying KEDA, by Helm
KSERVE_REPOSITORY = "oci://ghcr.io/kserve/charts"  # kserve.github.io, installation by Helm
CERT_MANAGER_REPOSITORY = "https://charts.jetstack.io"  # cert-manager.io, installation by Helm
KUEUE_REPOSITORY = "oci://registry.k8s.io/kueue/charts"  # kueue.sigs.k8s.io, installation, by Helm

# EKS add-ons by Kubernetes minor version: `aws eks describe-addon-versions --addon-name NAME
# --kubernetes-version MINOR`. Those of 1.36 are that command's defaults, as public Terraform configurations
# have recorded them; preflight asks AWS. No source found has those of 1.37: a stack file must name them.
_ADD_ONS = {
    "aws-ebs-csi-driver": "v1.54.0-eksbuild.1",
    "eks-node-monitoring-agent": "v1.4.2-eksbuild.1",
    "eks-pod-identity-agent": "v1.3.10-eksbuild.2",
    "vpc-cni": "v1.21.1-eksbuild.1",
}
EKS_ADD_ONS = {
    "1.32": {**_ADD_ONS, "coredns": "v1.11.4-eksbuild.33", "kube-proxy": "v1.32.13-eksbuild.5"},
    "1.33": {**_ADD_ONS, "coredns": "v1.12.4-eksbuild.1", "kube-proxy": "v1.33.5-eksbuild.2"},
    "1.34": {**_ADD_ONS, "coredns": "v1.12.4-eksbuild.1", "kube-proxy": "v1.34.1-eksbuild.2"},
    "1.35": {**_ADD_ONS, "coredns": "v1.13.2-eksbuild.1", "kube-proxy": "v1.35.0-eksbuild.2"},
    "1.36": {
        "aws-ebs-csi-driver": "v1.62.0-eksbuild.1",
        "coredns": "v1.14.2-eksbuild.4",
        "eks-node-monitoring-agent": "v1.6.6-eksbuild.1",
        "eks-pod-identity-agent": "v1.3.10-eksbuild.3",
        "kube-proxy": "v1.36.0-eksbuild.7",
        "vpc-cni": "v1.21.2-eksbuild.2",
    },
}
EKS_CHARTS_REPOSITORY = "https://aws.github.io/eks-charts"  # github.com/aws/eks-charts
EFA_DEVICE_PLUGIN = "v0.5.30"  # github.com/aws/eks-charts, stable/aws-efa-k8s-device-plugin/Chart.yaml
