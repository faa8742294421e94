"""One notebook on a GPU of a pool, or without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from components.claim import claim
from components.manifest import resource
from infra.model.environment import Environment
from infra.model.workload import NotebookWorkload
from infra.plan import workloads


@dataclass(frozen=True, kw_only=True)
class GpuNotebookArgs:
    """The notebook, and the environment with the pools that it may name."""

    environment: Environment
    workload: NotebookWorkload


class GpuNotebook(pulumi.ComponentResource):
    """A StatefulSet of one pod with an editor, and its Service.

    In a queue, a change of the pod replaces the StatefulSet; the claim of its home stays. ``cull`` needs the
    component `Notebooks`. Raises InputError if the environment's pools cannot hold it.
    """

    asks: pulumi.Output[Mapping[str, str]]

    def __init__(self, name: str, args: GpuNotebookArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:workloads:GpuNotebook", name, None, opts)
        environment, workload = args.environment, args.workload
        workloads.check(environment, workload)
        before = claim(name, environment, workload, self)
        service = workloads.service(environment, workload)
        assert service is not None
        before.append(resource(f"{name}-service", service, pulumi.ResourceOptions(parent=self)))
        inside = pulumi.ResourceOptions(parent=self, depends_on=before, delete_before_replace=True)
        if workload.queue:  # Kueue refuses such updates (jobs/statefulset/statefulset_webhook.go)
            inside.replace_on_changes = ["spec.template.spec", "metadata.labels"]
        resource(name, workloads.controller(environment, workload), inside)
        self.asks = pulumi.Output.from_input(workloads.asks(environment, workload))
        self.register_outputs({"asks": self.asks})
