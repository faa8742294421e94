"""Karpenter's objects for the pools that it provisions: elastic ones, and those with GPUs by claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from components.args import EnvironmentArgs
from infra.plan.karpenter import node_pools
from infra.plan.node_class import ec2_node_class, node_role
from infra.plan.overlays import node_overlays


@dataclass(frozen=True, kw_only=True)
class ElasticPoolsArgs(EnvironmentArgs):
    """``subnets``: ids by zone of the subnets of an existing VPC."""

    subnets: Mapping[str, pulumi.Output[str]] = field(default_factory=dict)


class ElasticPools(pulumi.ComponentResource):
    """Per pool an EC2NodeClass, its NodeOverlays, and a NodePool for each way of buying nodes.

    They are deleted before Karpenter: only Karpenter can terminate their nodes.
    """

    def __init__(self, name: str, args: ElasticPoolsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:aws:ElasticPools", name, None, opts)
        self._name = name
        env = args.environment
        for pool in env.pools:
            if not pool.by_karpenter:
                continue
            before = [
                self._object("class", ec2_node_class(env, pool, node_role(env), env.name, args.subnets), []),
                # Without overlays, Karpenter would not know which slices a new node will offer.
                *(self._object("overlay", overlay, []) for overlay in node_overlays(env, pool)),
            ]
            for node_pool in node_pools(env, pool):
                self._object("pool", node_pool, before)
        self.register_outputs({})

    def _object(
        self, role: str, manifest: Mapping[str, Any], after: Sequence[pulumi.Resource]
    ) -> CustomResource:
        return CustomResource(
            f"{self._name}-{role}-{manifest['metadata']['name']}",
            api_version=manifest["apiVersion"],
            kind=manifest["kind"],
            metadata=manifest["metadata"],
            spec=manifest["spec"],
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)),
        )
