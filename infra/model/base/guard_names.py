"""Constants that the program, the commands and the guards against losses share."""

from __future__ import annotations

VARIABLE = "GPUFORM_ACKNOWLEDGE"
"""Acknowledged names of one engine run, separated by spaces."""

ONLY = "GPUFORM_ONLY"
"""Which of `SCOPE` one engine run registers, separated by commas; empty: the whole platform."""
SCOPE = ("nodes", "layouts")
"""What only the engine can do on a cluster where a GitOps controller applies the platform."""

REPORT = "*"
"""As a name: losses are only reported."""

VERDICTS = ("acknowledged", "not acknowledged")
"""Ends of a guard's warning of a loss, after a semicolon."""

GUARD = "gpuform:guards:LossGuard"

KUEUE_API = "kueue.x-k8s.io/v1beta2"
KUEUE_RELEASE = "kueue"

RELEASES = (
    *("gpu-operator", "nvidia-device-plugin", "dcgm-exporter", "dra-driver-nvidia-gpu"),
    "monitoring",
    KUEUE_RELEASE,
    "keda",
    *("cert-manager", "kserve-crd", "kserve"),
)
"""Names of the Helm releases that a stack may install into its own namespaces."""

USED_CLUSTERS = ("existing", "hosts")
"""Kinds of cluster that a stack uses and does not create: a kubeconfig may lead to another one."""
GUARDED_GROUPS = ("openstack",)
"""Kinds of cluster with a guard of its own (`ReplacementGuard`) for replacements of node groups."""
CERTIFICATES = ("kedaorg-certs", "kserve-webhook-server-cert", "cert-manager-webhook-ca")
"""Names of the Secrets that programs of these releases make for their webhooks; nothing is lost with them."""
