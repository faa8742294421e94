"""One Deployment on the GPUs of a pool, with its Service and its update strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from components.claim import claim
from components.manifest import resource, within
from components.workload_resources import BlueGreen
from infra.model.environment import Environment
from infra.model.rollout import BlueGreen as ByColour
from infra.model.workload import DeploymentWorkload
from infra.plan import serving, workloads


@dataclass(frozen=True, kw_only=True)
class GpuDeploymentArgs:
    """The deployment, and the environment with the pools that it may name.

    ``kubeconfig`` (a path or the contents) is needed only for ``update: {kind: blue_green}``, which our own
    provider does. ``scaled_by`` is what ends the deletion of a ScaledObject: the component with KEDA;
    ``served_by`` is that of an InferenceService: the component with KServe.
    """

    environment: Environment
    workload: DeploymentWorkload
    kubeconfig: pulumi.Input[str] | None = None
    scaled_by: Sequence[pulumi.Resource] = ()
    served_by: Sequence[pulumi.Resource] = ()


class GpuDeployment(pulumi.ComponentResource):
    """A Deployment with pods that request what their pool offers, tolerate its taints and run on its nodes.

    With a model, an InferenceService that KServe makes one of.
    Raises InputError if the environment's pools cannot hold it, ValueError for a missing kubeconfig.
    """

    asks: pulumi.Output[Mapping[str, str]]
    """What each pod requests."""
    address: pulumi.Output[str]
    """Where the cluster reaches its Service; empty without one."""

    def __init__(
        self, name: str, args: GpuDeploymentArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuform:workloads:GpuDeployment", name, None, opts)
        environment, workload = args.environment, args.workload
        workloads.check(environment, workload)
        before = claim(name, environment, workload, self)
        inside = pulumi.ResourceOptions(parent=self, depends_on=list(before))
        if workload.blue_green:
            self._in_two_colours(name, args, workload.blue_green, inside)
        else:
            deployment = workloads.controller(environment, workload)
            times = within(*workloads.wait_minutes(environment, workload))
            service = workloads.service(environment, workload)
            if service:
                # Beside the Deployment, not before it: the official provider waits for a Service's endpoints.
                beside = pulumi.ResourceOptions(parent=self, custom_timeouts=times)
                resource(f"{name}-service", service, beside)
            if runtime := workloads.runtime(environment, workload):
                before += args.served_by
                first = pulumi.ResourceOptions(parent=self, depends_on=list(before))
                before.append(resource(f"{name}-runtime", runtime, first))
                inside.depends_on = list(before)
            inside.custom_timeouts = times
            if deployment["kind"] == "Deployment" and "replicas" not in deployment["spec"]:
                # The server takes 1 for a number that is no longer applied. The provider applies the live one
                # until another manager sets it [pulumi-kubernetes, handleSSAIgnoreFields].
                inside.ignore_changes = ["spec.replicas"]
            before.append(resource(name, deployment, inside))
        for manifest in workloads.scaled(environment, workload):
            # Deleted before the Deployment, which it names, and before KEDA, which removes its finalizer. A
            # dependency of the parent does not suffice: if scale is removed, the parent stays.
            later = pulumi.ResourceOptions(parent=self, depends_on=[*before, *args.scaled_by])
            resource(f"{name}-{manifest['kind']}", manifest, later)
        self.asks = pulumi.Output.from_input(workloads.asks(environment, workload))
        self.address = pulumi.Output.from_input(serving.address(workload))
        self.register_outputs({"asks": self.asks, "address": self.address})

    def _in_two_colours(
        self, name: str, args: GpuDeploymentArgs, update: ByColour, opts: pulumi.ResourceOptions
    ) -> None:
        if args.kubeconfig is None:
            raise ValueError(f"{name}: update: {{kind: blue_green}} needs the kubeconfig of the cluster")
        service = workloads.service(args.environment, args.workload)
        assert service is not None  # the model requires one
        start = workloads.wait_minutes(args.environment, args.workload)[0]
        BlueGreen(
            name,
            kubeconfig=args.kubeconfig,
            context=args.environment.context,
            deployment=workloads.controller(args.environment, args.workload),
            service=service,
            step=update.step,
            switch_at=args.workload.switch_at,
            deadline_seconds=update.deadline_seconds or start * 60,
            opts=opts,
        )
