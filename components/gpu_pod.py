"""One bare Pod on the GPUs of a pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from components.claim import claim
from components.manifest import resource
from infra.model.environment import Environment
from infra.model.workload import PodWorkload
from infra.plan import workloads


@dataclass(frozen=True, kw_only=True)
class GpuPodArgs:
    """The pod, and the environment whose pools it may name."""

    environment: Environment
    workload: PodWorkload


class GpuPod(pulumi.ComponentResource):
    """A Pod that asks for what its pool offers, tolerates the pool's taints and keeps to its nodes.

    Nothing starts it again. Raises InputError where the environment's pools cannot hold it.
    """

    asks: pulumi.Output[Mapping[str, str]]

    def __init__(self, name: str, args: GpuPodArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register the Pod, after the template of its claim if it has one."""
        super().__init__("gpuform:workloads:GpuPod", name, None, opts)
        environment, workload = args.environment, args.workload
        workloads.check(environment, workload)
        before = claim(name, environment, workload, self)
        pod = workloads.controller(environment, workload)
        resource(name, pod, pulumi.ResourceOptions(parent=self, depends_on=before))
        self.asks = pulumi.Output.from_input(workloads.asks(environment, workload))
        self.register_outputs({"asks": self.asks})
