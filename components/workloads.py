"""The environment's workloads."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from components.gpu_deployment import GpuDeployment, GpuDeploymentArgs
from components.gpu_job import GpuJob, GpuJobArgs
from components.gpu_notebook import GpuNotebook, GpuNotebookArgs
from components.gpu_pod import GpuPod, GpuPodArgs
from infra.model.environment import Environment
from infra.model.workload import DeploymentWorkload, JobWorkload, NotebookWorkload, Workload


def component(
    name: str,
    environment: Environment,
    workload: Workload,
    kubeconfig: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
    scaled_by: Sequence[pulumi.Resource] = (),
    served_by: Sequence[pulumi.Resource] = (),
) -> pulumi.ComponentResource:
    """Register the component of the workload's kind; raises what that component raises."""
    if isinstance(workload, DeploymentWorkload):
        deployment = GpuDeploymentArgs(
            environment=environment,
            workload=workload,
            kubeconfig=kubeconfig,
            scaled_by=scaled_by,
            served_by=served_by,
        )
        return GpuDeployment(name, deployment, opts)
    if isinstance(workload, JobWorkload):
        return GpuJob(name, GpuJobArgs(environment=environment, workload=workload), opts)
    if isinstance(workload, NotebookWorkload):
        return GpuNotebook(name, GpuNotebookArgs(environment=environment, workload=workload), opts)
    return GpuPod(name, GpuPodArgs(environment=environment, workload=workload), opts)


def workload_name(prefix: str, namespace: str, workload: str) -> str:
    """Resource name of a workload; another one for each pair.

    A namespace's hyphens are doubled: the first odd run of hyphens ends the namespace.
    """
    return f"{prefix}-{namespace.replace('-', '--')}-{workload}"


@dataclass(frozen=True, kw_only=True)
class WorkloadsArgs:
    """The environment with the workloads, and the cluster that they run on.

    ``queues`` is deleted after the workloads that have a queue, if both are removed in one update: a queue
    waits for the end of what it has admitted, and the order of its own component would delete it first.
    """

    environment: Environment
    kubeconfig: pulumi.Input[str]
    queues: pulumi.Resource | None = None
    scaled_by: Sequence[pulumi.Resource] = ()
    served_by: Sequence[pulumi.Resource] = ()


class Workloads(pulumi.ComponentResource):
    """Pods, Deployments, Jobs and notebooks.

    An update waits for Pods and Deployments and says why one does not run.
    """

    def __init__(self, name: str, args: WorkloadsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:Workloads", name, None, opts)
        works = args.environment.workloads
        taken = {workload_name(name, work.namespace, work.name) for work in works}
        for work in works:
            own = workload_name(name, work.namespace, work.name)
            # The name in earlier versions, which two workloads could share.
            before = f"{name}-{work.namespace}-{work.name}"
            if before in taken:
                before = own
            inside = pulumi.ResourceOptions(
                parent=self,
                depends_on=[args.queues] if work.queue and args.queues else [],
                aliases=[pulumi.Alias(name=before)] if before != own else [],
                transformations=[functools.partial(self._was_here, own, before)],
            )
            component(own, args.environment, work, args.kubeconfig, inside, args.scaled_by, args.served_by)
        self.register_outputs({})

    def _was_here(
        self, own: str, before: str, args: pulumi.ResourceTransformationArgs
    ) -> pulumi.ResourceTransformationResult | None:
        """An alias: in earlier versions the objects were direct children of this component."""
        if not args.type_.startswith("kubernetes:"):
            return None
        alias = pulumi.Alias(name=before + args.name.removeprefix(own), parent=self)
        return pulumi.ResourceTransformationResult(
            args.props, pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(aliases=[alias]))
        )
