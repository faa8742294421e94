"""Kueue, and the queue of each team."""

from __future__ import annotations

import pulumi

from components.args import EnvironmentArgs
from components.chart import installed
from components.manifest import resource, within
from infra.plan import queues

TIMEOUT_S = 300
DRAIN_MINUTES = 60
"""How long the removal of a queue waits for what it has admitted."""


class Queues(pulumi.ComponentResource):
    """Kueue's release with its CRDs, flavors of the pools, cohorts, and the teams' queues.

    The teams' queues are created last and deleted first: Kueue keeps one until all that it has admitted has
    ended (finalizer kueue.x-k8s.io/resource-in-use), and admits nothing more. Only then the flavors go, then
    their topologies, and the release, whose removal takes every object of Kueue.
    """

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:Queues", name, None, opts)
        env = args.environment
        planned = queues.release(env)
        assert planned is not None, "no queues are declared"
        child = pulumi.ResourceOptions(parent=self)
        release = installed(f"{name}-release", planned, TIMEOUT_S, child)
        made: list[tuple[str, pulumi.Resource]] = []
        for manifest in queues.manifests(env):
            kind, meta = manifest["kind"], manifest["metadata"]
            last = kind == "ClusterQueue"
            before = [one for of, one in made if last or (of, kind) == ("Topology", "ResourceFlavor")]
            inside = pulumi.ResourceOptions(
                parent=self,
                depends_on=[release, *before],
                custom_timeouts=within(DRAIN_MINUTES, DRAIN_MINUTES, DRAIN_MINUTES) if last else None,
            )
            place = f"{meta['namespace'].replace('-', '--')}-" if kind == "LocalQueue" else ""
            found = resource(f"{name}-{kind}-{place}{meta['name']}", manifest, inside)
            if not last:
                made.append((kind, found))
        self.register_outputs({})
