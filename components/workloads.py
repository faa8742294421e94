"""Workloads: a Pod, Job, Deployment or notebook each, with the objects that it needs."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pulumi

from components.custom_resources import BlueGreen, BlueGreenArgs, ScalingRemoval, ScalingRemovalArgs
from components.manifest import Manifest, resource, timeouts
from infra.model.base import labels


@dataclass(frozen=True, kw_only=True)
class WorkloadArgs:
    """Manifests of the workload: ``controller`` makes its pods, or is the Pod itself.

    ``claim`` is the ResourceClaimTemplate of its pods; ``minutes`` bound a create and an update. Of a
    Deployment only: ``blue_green`` replaces it and its Service; ``runtime`` is the ServingRuntime of an
    InferenceService; ``scaled`` measures it and sets its number of pods, and ``scaling_removal`` sets it to
    the declared one after their deletion. ``scaled_by``, the component with KEDA, ends the deletion of a
    ScaledObject; ``served_by``, that with KServe, of an InferenceService.
    """

    controller: Manifest
    claim: Manifest | None = None
    service: Manifest | None = None
    minutes: tuple[int, int] | None = None
    blue_green: BlueGreenArgs | None = None
    runtime: Manifest | None = None
    scaled: Sequence[Manifest] = ()
    scaling_removal: ScalingRemovalArgs | None = None
    scaled_by: Sequence[pulumi.Resource] = ()
    served_by: Sequence[pulumi.Resource] = ()

    @property
    def queued(self) -> bool:
        """Whether Kueue admits it."""
        return labels.QUEUE in self.controller["metadata"].get("labels", {})


class _Workload(pulumi.ComponentResource):
    """Base of the components of a workload."""

    TYPE: ClassVar[str]
    asks: pulumi.Output[Mapping[str, str]]
    """GPUs, shares or slices (unless by claim) and adapters that each pod requests, by resource."""

    def __init__(self, name: str, args: WorkloadArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(self.TYPE, name, None, opts)
        before: list[pulumi.Resource] = []
        if args.claim:
            # A template is immutable: changed content is another resource with another name.
            suffix = args.claim["metadata"]["name"].removeprefix(args.controller["metadata"]["name"])
            before.append(resource(f"{name}{suffix}", args.claim, pulumi.ResourceOptions(parent=self)))
        if args.blue_green:
            BlueGreen(name, args.blue_green, pulumi.ResourceOptions(parent=self, depends_on=before))
        else:
            before.append(self._controller(name, args, before))
        if args.scaling_removal:
            options = pulumi.ResourceOptions(parent=self, depends_on=list(before))
            before.append(ScalingRemoval(f"{name}-scaling", args.scaling_removal, options))
        for manifest in args.scaled:
            # Deleted before the Deployment, which it names, and before KEDA, which removes its finalizer. A
            # dependency of the parent does not suffice: if scale is removed, the parent stays.
            options = pulumi.ResourceOptions(parent=self, depends_on=[*before, *args.scaled_by])
            before.append(resource(f"{name}-{manifest['kind']}", manifest, options))
        self.asks = pulumi.Output.from_input(_requested_devices(args.controller["spec"]))
        outputs: dict[str, pulumi.Output[Any]] = {"asks": self.asks}
        if isinstance(self, GpuDeployment):
            outputs["address"] = self.address = pulumi.Output.from_input(_address(args.service))
        self.register_outputs(outputs)

    def _controller(self, name: str, args: WorkloadArgs, before: list[pulumi.Resource]) -> pulumi.Resource:
        """Register Service, runtime and controller; adds what the controller needs to ``before``."""
        opts = pulumi.ResourceOptions(
            parent=self, custom_timeouts=timeouts(*args.minutes) if args.minutes else None
        )
        if args.service and isinstance(self, GpuDeployment):
            # Beside the Deployment, not before it: the official provider waits for a Service's endpoints.
            service_options = pulumi.ResourceOptions(parent=self, custom_timeouts=opts.custom_timeouts)
            resource(f"{name}-service", args.service, service_options)
        elif args.service:
            before.append(resource(f"{name}-service", args.service, pulumi.ResourceOptions(parent=self)))
        if args.runtime:
            before += args.served_by
            runtime_options = pulumi.ResourceOptions(parent=self, depends_on=list(before))
            before.append(resource(f"{name}-runtime", args.runtime, runtime_options))
        opts.depends_on = list(before)
        if args.controller["kind"] == "Job":
            opts.ignore_changes = _fields_of_new_jobs(args.controller["spec"]["template"])
        if args.controller["kind"] == "StatefulSet":
            opts.delete_before_replace = True
            if args.queued:  # Kueue refuses such updates (jobs/statefulset/statefulset_webhook.go)
                opts.replace_on_changes = ["spec.template.spec", "metadata.labels"]
        if args.controller["kind"] == "Deployment" and "replicas" not in args.controller["spec"]:
            # The server takes 1 for a number that is no longer applied. The provider applies the live one
            # until another manager sets it [pulumi-kubernetes, handleSSAIgnoreFields].
            opts.ignore_changes = ["spec.replicas"]
        return resource(name, args.controller, opts)


class GpuPod(_Workload):
    """A Pod; no controller recreates it."""

    TYPE = "gpuform:workloads:GpuPod"


class GpuJob(_Workload):
    """A Job; an update waits until all pods have succeeded only with ``minutes``.

    Unless it is a gang, one pod may run and wait for another.
    """

    TYPE = "gpuform:workloads:GpuJob"


class GpuNotebook(_Workload):
    """A StatefulSet of one pod with an editor, and its Service.

    In a queue, a change of the pod replaces the StatefulSet; the claim of its home stays.
    """

    TYPE = "gpuform:workloads:GpuNotebook"


class GpuDeployment(_Workload):
    """A Deployment with its Service, or an InferenceService that KServe makes one of."""

    TYPE = "gpuform:workloads:GpuDeployment"
    address: pulumi.Output[str]
    """Where the cluster reaches its Service; empty without one."""


def _fields_of_new_jobs(template: Manifest) -> list[str]:
    """Fields that would replace a running Job of an earlier version; one that is replaced gets them."""
    path, found = "spec.template.metadata.annotations", template["metadata"].get("annotations", {})
    ours = [f'{path}["{key}"]' for key in labels.KEPT] if found.keys() - labels.KEPT.keys() else [path]
    return ["spec.podFailurePolicy", *(ours if found else ())]


def _requested_devices(spec: Manifest) -> dict[str, str]:
    pod = spec["template"]["spec"] if "template" in spec else spec
    container = pod["predictor"]["model"] if "predictor" in pod else pod["containers"][0]
    requests = container.get("resources", {}).get("requests", {})
    return {
        key: value
        for key, value in requests.items()
        if key.startswith((labels.NVIDIA_PREFIX, *labels.ADAPTERS))
    }


def _address(service: Manifest | None) -> str:
    if service is None:
        return ""
    metadata, (port, *_) = service["metadata"], service["spec"]["ports"]
    return f"{metadata['name']}.{metadata['namespace']}.svc:{port['port']}"


COMPONENTS: Mapping[str, type[_Workload]] = {
    "Deployment": GpuDeployment,
    "InferenceService": GpuDeployment,
    "Job": GpuJob,
    "Pod": GpuPod,
    "StatefulSet": GpuNotebook,
}
"""By the kind of the controller."""


def workload_name(prefix: str, namespace: str, workload: str) -> str:
    """Resource name of a workload; another one for each pair.

    A namespace's hyphens are doubled: the first odd run of hyphens ends the namespace.
    """
    return f"{prefix}-{namespace.replace('-', '--')}-{workload}"


@dataclass(frozen=True, kw_only=True)
class WorkloadsArgs:
    """``queues`` is deleted after the workloads that have a queue, if both are removed in one update.

    A queue waits for the end of what it has admitted, and the order of its own component would delete it
    first.
    """

    workloads: Sequence[WorkloadArgs]
    queues: pulumi.Resource | None = None


class Workloads(pulumi.ComponentResource):
    """Pods, Deployments, Jobs and notebooks.

    An update waits for Pods and Deployments and says why one does not run.
    """

    def __init__(self, name: str, args: WorkloadsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:Workloads", name, None, opts)
        metadata = [workload.controller["metadata"] for workload in args.workloads]
        taken = {workload_name(name, meta["namespace"], meta["name"]) for meta in metadata}
        for meta, workload in zip(metadata, args.workloads, strict=True):
            full_name = workload_name(name, meta["namespace"], meta["name"])
            # The name in earlier versions, which two workloads could share.
            old_name = f"{name}-{meta['namespace']}-{meta['name']}"
            if old_name in taken:
                old_name = full_name
            options = pulumi.ResourceOptions(
                parent=self,
                depends_on=[args.queues] if workload.queued and args.queues else [],
                aliases=[pulumi.Alias(name=old_name)] if old_name != full_name else [],
                transformations=[functools.partial(self._alias_child, full_name, old_name)],
            )
            COMPONENTS[workload.controller["kind"]](full_name, workload, options)
        self.register_outputs({})

    def _alias_child(
        self, full_name: str, old_name: str, args: pulumi.ResourceTransformationArgs
    ) -> pulumi.ResourceTransformationResult | None:
        """An alias: in earlier versions the objects were direct children of this component."""
        if not args.type_.startswith("kubernetes:"):
            return None
        alias = pulumi.Alias(name=old_name + args.name.removeprefix(full_name), parent=self)
        return pulumi.ResourceTransformationResult(
            args.props, pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(aliases=[alias]))
        )
