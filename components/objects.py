"""Components that are a list of Kubernetes objects each; most are a program with its rights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pulumi

from components.manifest import Manifest, resource, timeouts
from infra.model.base.namespaces import TRIAL

START_MINUTES = 10
"""For a pod of one container with a small image; it is also the Kubernetes provider's default."""
_SUFFIXES = {
    "ServiceAccount": "account",
    "ClusterRole": "cluster-role",
    "ClusterRoleBinding": "cluster-role-binding",
    "Role": "role",
    "RoleBinding": "role-binding",
    "ConfigMap": "program",
    "Deployment": "deployment",
}


@dataclass(frozen=True, kw_only=True)
class ManifestsArgs:
    """The objects, in creation order."""

    manifests: Iterable[Manifest]


class ManifestsComponent(pulumi.ComponentResource):
    """Objects; a program's pod starts after all before it, and a binding is created after what it names."""

    TYPE: ClassVar[str]
    SUFFIXES: ClassVar[Mapping[str, str]] = {}
    """Last parts of resource names, by kind; the kind if left out."""

    def __init__(self, name: str, args: ManifestsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(self.TYPE, name, None, opts)
        before: list[pulumi.Resource] = []
        for manifest in args.manifests:
            opts = self._options(manifest["kind"], before)
            before.append(resource(f"{name}-{self._suffix(**manifest)}", manifest, opts))
        self.register_outputs({})

    def _options(self, kind: str, before: Sequence[pulumi.Resource]) -> pulumi.ResourceOptions:
        if kind == "Deployment":
            limits = timeouts(START_MINUTES, START_MINUTES)
            return pulumi.ResourceOptions(parent=self, depends_on=list(before), custom_timeouts=limits)
        named = [item for item in before if not item.pulumi_resource_type.endswith("Binding")]
        return pulumi.ResourceOptions(parent=self, depends_on=named if kind.endswith("Binding") else [])

    def _suffix(self, kind: str, metadata: Mapping[str, Any], **_: Any) -> str:
        return self.SUFFIXES.get(kind, "{kind}").format(**metadata, kind=kind)


class PoolKeeper(ManifestsComponent):
    """The program that gives nodes that join later their pool's labels and taints.

    Nodes that join while it is down wait until it is back, or for the next `gpuform up`. It is created after
    the pools, so their nodes change before it learns of it, and deleted before the nodes' labels.
    """

    TYPE = "gpuform:platform:PoolKeeper"
    SUFFIXES = _SUFFIXES


class ReadinessGate(ManifestsComponent):
    """The program that lets pods onto new GPU nodes.

    Waiting nodes keep waiting while it is down. It is deleted after the pools of nodes that wait for it.
    """

    TYPE = "gpuform:platform:ReadinessGate"
    SUFFIXES = _SUFFIXES

    def _suffix(self, kind: str, metadata: Mapping[str, Any], **_: Any) -> str:
        trial = "trial-" if metadata.get("namespace") == TRIAL else ""
        return trial + super()._suffix(kind, metadata)


class HealthLoop(ManifestsComponent):
    """The program that acts on nodes with a broken GPU, and what Prometheus needs to scrape it.

    When it is deleted, nodes keep their taint: nothing else knows whether they are repaired.
    """

    TYPE = "gpuform:platform:HealthLoop"
    SUFFIXES: ClassVar = dict.fromkeys(("Role", "RoleBinding"), "{kind}-{name}")


class Admission(ManifestsComponent):
    """Admission policies for pods that request GPUs, with their bindings."""

    TYPE = "gpuform:platform:Admission"

    def _suffix(self, kind: str, metadata: Mapping[str, Any], **_: Any) -> str:
        role = "templates" if metadata["name"].endswith("templates") else "pods"
        return f"{role}-binding" if kind.endswith("Binding") else role


class Notebooks(ManifestsComponent):
    """The culler of notebooks; on the embedded cluster also the classes of simulated volumes."""

    TYPE = "gpuform:platform:Notebooks"
    SUFFIXES: ClassVar = dict.fromkeys(("Role", "RoleBinding"), "{kind}-{namespace}")


class Scheduler(ManifestsComponent):
    """The scheduler that packs GPU nodes; without its Deployment on the embedded control plane.

    Pods that name it wait while it is down: it is created before them and deleted after them.
    """

    TYPE = "gpuform:platform:Scheduler"

    def _suffix(self, kind: str, metadata: Mapping[str, Any], **_: Any) -> str:
        return (
            kind if kind == "ConfigMap" else f"{kind}-{metadata['name']}"
        )  # its name changes with its content


class Namespaces(ManifestsComponent):
    """Namespaces with their Pod Security labels."""

    TYPE = "gpuform:platform:Namespaces"
    SUFFIXES: ClassVar = {"Namespace": "{name}"}


@dataclass(frozen=True, kw_only=True)
class GpuSharingArgs:
    """ConfigMaps of the device plugin and of the MIG manager (mig-parted)."""

    device_plugin: Manifest | None = None
    mig_parted: Manifest | None = None


class GpuSharing(pulumi.ComponentResource):
    """The ConfigMaps that configure GPU sharing.

    The operator does not notice an edited ConfigMap, so each content has its own name. The new one is created
    before the operator's release refers to it, and the old one is deleted at the end of the same update, when
    the nodes use the new one.
    """

    names: pulumi.Output[list[str]]

    def __init__(self, name: str, args: GpuSharingArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:GpuSharing", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        roles = {"device-plugin": args.device_plugin, "mig-parted": args.mig_parted}
        maps = [resource(f"{name}-{role}", manifest, child) for role, manifest in roles.items() if manifest]
        self.names = pulumi.Output.all(*[config_map.id for config_map in maps])
        self.register_outputs({"names": self.names})


class Room(ManifestsComponent):
    """Priority classes, GPU quotas and placeholder pods; before the workloads, after the pools."""

    TYPE = "gpuform:platform:Room"
    SUFFIXES: ClassVar = {
        "PriorityClass": "priority-{name}",
        "ResourceQuota": "quota-{namespace}",
        "Deployment": "{name}",
    }

    def _options(self, kind: str, before: Sequence[pulumi.Resource]) -> pulumi.ResourceOptions:
        if kind == "PriorityClass":
            fixed = ["value", "preemptionPolicy"]  # the API server changes neither in place
            return pulumi.ResourceOptions(parent=self, replace_on_changes=fixed, delete_before_replace=True)
        classes = [item for item in before if item.pulumi_resource_type.endswith(":PriorityClass")]
        return pulumi.ResourceOptions(parent=self, depends_on=classes if kind == "Deployment" else None)
