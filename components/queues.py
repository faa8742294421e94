"""Kueue, and the queue of each team."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from components.chart import installed
from components.manifest import Manifest, resource, within
from infra.plan.charts import ChartRelease

TIMEOUT_S = 300
DRAIN_MINUTES = 60
"""How long the removal of a queue waits for what it has admitted."""
_AFTER = {"ClusterQueue": ("Cohort", "LocalQueue", "ResourceFlavor"), "ResourceFlavor": ("Topology",)}
"""Kinds before each; deleted in the reverse order. Queues do not wait for each other."""


@dataclass(frozen=True, kw_only=True)
class QueuesArgs:
    """Kueue's release, its objects in creation order, and the cluster that has them."""

    release: ChartRelease
    manifests: Sequence[Manifest]
    kubeconfig: pulumi.Input[str]
    context: str | None = None


class Queues(pulumi.ComponentResource):
    """Kueue's release with its CRDs, flavors of the pools, cohorts, and the teams' queues.

    The teams' queues are created last and deleted first: Kueue keeps one until all that it has admitted has
    ended (finalizer kueue.x-k8s.io/resource-in-use), and admits nothing more. If all queues are removed, it
    is stopped before that (`gpuform.provider.queues.removal`). Then the flavors go, their topologies, and the
    release.
    """

    def __init__(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:Queues", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        # A rollback of the first install would leave aggregated ClusterRoles behind, which Helm does not take
        # over at the next; after a failed upgrade the old pods go on.
        release = installed(f"{name}-release", args.release, TIMEOUT_S, child, atomic=False)
        made: list[tuple[str, pulumi.Resource]] = []
        for manifest in args.manifests:
            kind, meta = manifest["kind"], manifest["metadata"]
            before = [one for of, one in made if of in _AFTER.get(kind, ())]
            inside = pulumi.ResourceOptions(
                parent=self,
                depends_on=[release, *before],
                custom_timeouts=within(DRAIN_MINUTES, DRAIN_MINUTES, DRAIN_MINUTES)
                if kind == "ClusterQueue"
                else None,
            )
            place = f"{meta['namespace'].replace('-', '--')}-" if kind == "LocalQueue" else ""
            made.append((kind, resource(f"{name}-{kind}-{place}{meta['name']}", manifest, inside)))
        cluster = {"kubeconfig": args.kubeconfig, "context": args.context}
        after = pulumi.ResourceOptions(parent=self, depends_on=[release, *(one for _, one in made)])
        pulumi.CustomResource("gpuform:queues:KueueRemoval", f"{name}-removal", cluster, after)
        self.register_outputs({})
