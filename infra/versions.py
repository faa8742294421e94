"""Every pin, one line each, with the place where a newer one is found.

A pin is changed here and nowhere else; the Go modules under ``toolchain/`` repeat theirs in a go.mod, and a
test compares the two.
"""

PULUMI = "3.256.0"  # github.com/pulumi/pulumi/releases; pyproject.toml pins the SDK to the same version
KUBERNETES = "1.34.4"  # kubernetes.io/releases
ETCD = "3.6.5"  # github.com/etcd-io/etcd/releases
KWOK = "0.7.0"  # github.com/kubernetes-sigs/kwok/releases
HELM = "3.19.0"  # github.com/helm/helm/releases
GO = "1.26.5"  # go.dev/dl: the lowest version that builds the toolchain

GPU_OPERATOR = "v26.7.0"  # github.com/NVIDIA/gpu-operator/releases
GPU_DRIVER = "595.91.07"  # gpu-operator values.yaml, driver.version
CONTAINER_TOOLKIT = "1.20.0"  # gpu-operator values.yaml, toolkit.version
DEVICE_PLUGIN = "0.20.0"  # gpu-operator values.yaml, devicePlugin.version
GPU_OPERATOR_REPOSITORY = "https://helm.ngc.nvidia.com/nvidia"  # NVIDIA's chart repository
GPU_DRIVER_OF_BRANCH = {580: "580.95.05"}  # gpu-operator platform support: R580 is the last branch for Volta

EKS = ("1.33", "1.34", "1.35")  # docs.aws.amazon.com/eks: versions in standard support
