"""One Job on the GPUs of a pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from components.claim import claim
from components.manifest import resource, within
from infra.model.environment import Environment
from infra.model.workload import JobWorkload
from infra.plan import workloads


@dataclass(frozen=True, kw_only=True)
class GpuJobArgs:
    """The job, and the environment with the pools that it may name."""

    environment: Environment
    workload: JobWorkload


class GpuJob(pulumi.ComponentResource):
    """A Job with pods that request what their pool offers, tolerate its taints and run on its nodes.

    An update waits until all pods have succeeded only if the workload sets ``wait_minutes``. Unless it is a
    ``gang``, one pod may run and wait for another. Raises InputError if the environment's pools cannot hold
    it.
    """

    asks: pulumi.Output[Mapping[str, str]]

    def __init__(self, name: str, args: GpuJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:workloads:GpuJob", name, None, opts)
        environment, workload = args.environment, args.workload
        workloads.check(environment, workload)
        before = claim(name, environment, workload, self)
        service = workloads.service(environment, workload)
        if service:
            before.append(resource(f"{name}-service", service, pulumi.ResourceOptions(parent=self)))
        job = workloads.controller(environment, workload)
        minutes = workload.wait_minutes
        times = within(minutes, minutes) if minutes else None
        resource(name, job, pulumi.ResourceOptions(parent=self, depends_on=before, custom_timeouts=times))
        self.asks = pulumi.Output.from_input(workloads.asks(environment, workload))
        self.register_outputs({"asks": self.asks})
