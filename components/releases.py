"""Components that are one Helm release each, some with the objects that belong to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pulumi

from components.manifest import Manifest, helm_release, resource, timeouts
from infra.plan.charts import ChartRelease

MONITORING_S = 600  # a dozen images, a volume, and jobs that make the webhook's certificate
DRAIN_MINUTES = 60
"""How long the removal of a queue waits for what it has admitted."""
_AFTER = {"ClusterQueue": ("Cohort", "LocalQueue", "ResourceFlavor"), "ResourceFlavor": ("Topology",)}
"""Kinds before each; deleted in the reverse order. Queues do not wait for each other."""


@dataclass(frozen=True, kw_only=True)
class ReleaseArgs:
    """The release, and objects that must exist before it, by the last part of their resource names.

    ``later``: objects of its CRDs.
    ``cluster``: kubeconfig, context and pools of the nodes on which the device plugin runs.
    """

    release: ChartRelease
    before: Mapping[str, Manifest] = field(default_factory=dict)
    later: Sequence[Manifest] = ()
    cluster: Mapping[str, Any] = field(default_factory=dict)


class ReleaseComponent(pulumi.ComponentResource):
    """One Helm release as one resource: rendered objects would skip the chart's hooks."""

    TYPE: ClassVar[str]
    TIMEOUT_S: ClassVar[int] = 300
    SETTINGS: ClassVar[Mapping[str, Any]] = {}
    """Further arguments of the release."""
    STATUS: ClassVar[bool] = False
    """Whether the release's status is an output, and the release is deleted before its replacement comes."""
    REMOVAL: ClassVar[str] = ""
    """Type of the resource with the inputs ``cluster``."""

    def __init__(self, name: str, args: ReleaseArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(self.TYPE, name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        before = [resource(f"{name}-{suffix}", manifest, child) for suffix, manifest in args.before.items()]
        if args.cluster:
            before.append(pulumi.CustomResource(self.REMOVAL, f"{name}-removal", dict(args.cluster), child))
        options = pulumi.ResourceOptions(
            parent=self, depends_on=before, delete_before_replace=self.STATUS or None
        )
        release = helm_release(f"{name}-release", args.release, self.TIMEOUT_S, options, **self.SETTINGS)
        after = pulumi.ResourceOptions(parent=self, depends_on=[release])
        for manifest in args.later:
            resource(f"{name}-{manifest['metadata']['name']}", manifest, after)
        self.register_outputs({"status": pulumi.get(release, "status")} if self.STATUS else {})


class GpuOperator(ReleaseComponent):
    """NVIDIA's GPU operator; after its release, its labels are removed from the nodes.

    The release waits for the pods of the operator and of NFD, and before an upgrade for the hook that
    upgrades the CRDs. The DaemonSets belong to the ClusterPolicy: nothing here waits for drivers.
    """

    TYPE = "gpuform:platform:GpuOperator"
    TIMEOUT_S = 600  # two images on busy nodes; the lab's chart has the DaemonSets, too, and needs seconds
    SETTINGS: ClassVar = {"disableOpenapiValidation": True}  # required if the chart's hook upgrades CRDs
    STATUS = True
    REMOVAL = "gpuform:nodes:GpuOperatorRemoval"


class DevicePlugin(ReleaseComponent):
    """NVIDIA's device plugin, used without the GPU operator.

    It installs neither driver nor toolkit; on a node without them its pods do not become ready.
    """

    TYPE = "gpuform:platform:DevicePlugin"
    STATUS = True
    REMOVAL = "gpuform:nodes:PoolRemoval"


class DcgmExporter(ReleaseComponent):
    """dcgm-exporter, used without the GPU operator, its Service and, if requested, its ServiceMonitor."""

    TYPE = "gpuform:platform:DcgmExporter"


class DraDriver(ReleaseComponent):
    """NVIDIA's DRA driver on nodes with GPUs by claim, and device classes."""

    TYPE = "gpuform:platform:DraDriver"


class EfaDevicePlugin(ReleaseComponent):
    """A DaemonSet on the nodes with Elastic Fabric Adapters; installs without such a node, too."""

    TYPE = "gpuform:aws:EfaDevicePlugin"


class NetworkOperator(ReleaseComponent):
    """NVIDIA's network operator, and the policy by which it starts the RDMA device plugin."""

    TYPE = "gpuform:platform:NetworkOperator"


class Scaling(ReleaseComponent):
    """KEDA with its CRDs; the objects that use it belong to the workloads."""

    TYPE = "gpuform:platform:Scaling"


@dataclass(frozen=True, kw_only=True)
class MonitoringArgs:
    """The release, unless the cluster has a Prometheus; ``objects``: rules, monitors and dashboards.

    ``counters``: the ConfigMap of the exporter.
    """

    release: ChartRelease | None
    counters: Sequence[Manifest] = ()
    objects: Sequence[Manifest] = ()


class Monitoring(pulumi.ComponentResource):
    """Prometheus and its stack, the exporter's counters, rules and dashboards.

    It creates no Secret: users create those that the values name. Until they exist, Prometheus or
    Alertmanager waits, and the release does not. ``installed`` is what the exporter's program needs of it.
    """

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:Monitoring", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        # Changed content is another ConfigMap: the old one is deleted once the exporter has the new one.
        self.installed = [resource(f"{name}-counters", manifest, child) for manifest in args.counters]
        release = args.release and helm_release(f"{name}-release", args.release, MONITORING_S, child)
        self.installed += [release] if release else []
        after = pulumi.ResourceOptions(parent=self, depends_on=[release] if release else [])
        for manifest in args.objects:
            prefix = f"{name}-{manifest['metadata']['name'].removeprefix('gpuform-')}"
            # A ConfigMap is updated in place (the provider's enableConfigMapMutable): during a replacement, a
            # dashboard would be missing in Grafana. A ConfigMap that must be replaced has another name.
            resource(f"{prefix}-rules" if manifest["kind"] == "PrometheusRule" else prefix, manifest, after)
        self.register_outputs({"status": pulumi.get(release, "status")} if release else {})


@dataclass(frozen=True, kw_only=True)
class QueuesArgs:
    """Kueue's release, unless the cluster has it; its objects in creation order, and their cluster."""

    release: ChartRelease | None
    manifests: Sequence[Manifest]
    kubeconfig: pulumi.Input[str]
    context: str | None = None


class Queues(pulumi.ComponentResource):
    """Kueue's release with its CRDs, flavors of the pools, cohorts, and the teams' queues.

    The teams' queues are created last and deleted first: Kueue keeps one until all that it has admitted has
    ended (finalizer kueue.x-k8s.io/resource-in-use), and admits nothing more. If all queues are removed, it
    is stopped before that (`gpuform.provider.removals`). Then the flavors go, their topologies, and the
    release.
    """

    def __init__(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:Queues", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        # A rollback of the first install would leave aggregated ClusterRoles behind, which Helm does not take
        # over at the next; after a failed upgrade the old pods go on.
        release = args.release and helm_release(f"{name}-release", args.release, 300, child, atomic=False)
        installed = [release] if release else []
        created: list[tuple[str, pulumi.Resource]] = []
        for manifest in args.manifests:
            kind, meta = manifest["kind"], manifest["metadata"]
            before = [item for earlier, item in created if earlier in _AFTER.get(kind, ())]
            options = pulumi.ResourceOptions(
                parent=self,
                depends_on=[*installed, *before],
                custom_timeouts=timeouts(DRAIN_MINUTES, DRAIN_MINUTES, DRAIN_MINUTES)
                if kind == "ClusterQueue"
                else None,
            )
            prefix = f"{meta['namespace'].replace('-', '--')}-" if kind == "LocalQueue" else ""
            created.append((kind, resource(f"{name}-{kind}-{prefix}{meta['name']}", manifest, options)))
        if release:
            cluster = {"kubeconfig": args.kubeconfig, "context": args.context}
            after = pulumi.ResourceOptions(parent=self, depends_on=[release, *(item for _, item in created)])
            pulumi.CustomResource("gpuform:queues:KueueRemoval", f"{name}-removal", cluster, after)
        self.register_outputs({})
