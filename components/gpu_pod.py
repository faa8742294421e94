"""One bare Pod on the GPUs of a pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from components.claim import claim
from components.manifest import resource, within
from infra.model.environment import Environment
from infra.model.workload import PodWorkload
from infra.plan import workloads


@dataclass(frozen=True, kw_only=True)
class GpuPodArgs:
    """The pod, and the environment with the pools that it may name."""

    environment: Environment
    workload: PodWorkload


class GpuPod(pulumi.ComponentResource):
    """A Pod that requests what its pool offers, tolerates the pool's taints and runs on its nodes.

    No controller recreates it. Raises InputError if the environment's pools cannot hold it.
    """

    asks: pulumi.Output[Mapping[str, str]]

    def __init__(self, name: str, args: GpuPodArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:workloads:GpuPod", name, None, opts)
        environment, workload = args.environment, args.workload
        workloads.check(environment, workload)
        before = claim(name, environment, workload, self)
        pod = workloads.controller(environment, workload)
        times = within(*workloads.wait_minutes(environment, workload))
        resource(name, pod, pulumi.ResourceOptions(parent=self, depends_on=before, custom_timeouts=times))
        self.asks = pulumi.Output.from_input(workloads.asks(environment, workload))
        self.register_outputs({"asks": self.asks})
