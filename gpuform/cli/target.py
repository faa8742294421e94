"""What a reading command is about: a stack, or any cluster by its kubeconfig."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import MAIN_STACK, Paths
from gpuform.checkout.stacks import load_environment
from gpuform.cli.output import cluster_failures, reach_cluster
from gpuform.usage import cluster_objects
from gpuform.usage.cluster_objects import LiveObjects
from gpuform.usage.status import ClusterStatus, summarise_status
from infra.model.base import labels
from infra.model.environment import Environment

if TYPE_CHECKING:
    from gpuform.adopt.objects import Found
    from gpuform.kubernetes.kinds import Kind

StackOrNone = Annotated[
    str | None,
    typer.Argument(metavar="[STACK]", show_default=MAIN_STACK, help="Name of the stack: Pulumi.STACK.yaml."),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="Kubeconfig of a cluster; without a stack, its pools are found by themselves."),
]
Context = Annotated[str | None, typer.Option(help="Context in the kubeconfig; its current one by default.")]


@dataclass(frozen=True)
class Target:
    """``name`` for people; ``notes``: what of a cluster without a stack belongs to no pool, and why."""

    name: str
    env: Environment
    paths: Paths
    kubeconfig: Path | None = None
    context: str | None = None
    notes: tuple[str, ...] = ()

    @contextmanager
    def reach(self) -> Iterator[tuple[Path, str | None]]:
        """Kubeconfig and context of the cluster."""
        if self.kubeconfig is not None:
            yield self.kubeconfig, self.context
            return
        with reach_cluster(self.env, self.paths, self.name) as access:
            yield access

    def fetch(self, kubeconfig: Path, context: str | None) -> LiveObjects:
        """Its objects; Failure if it does not answer."""
        with cluster_failures(self.name, kubeconfig, "--kubeconfig" if self.kubeconfig else None):
            found = cluster_objects.fetch_objects(self.env, kubeconfig, context)
        return replace(found, nodes=tuple(map(self._labelled, found.nodes))) if self.kubeconfig else found

    def status(self, objects: LiveObjects) -> ClusterStatus:
        """Pools, nodes and pods; `notes` say more of nodes without a pool than the status does."""
        found = summarise_status(self.env, objects.nodes, objects.pods, objects.claims, objects.queues)
        return replace(found, unassigned_nodes={}) if self.kubeconfig else found

    def _labelled(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """The node with the label of the pool that selects it, as an update of a stack would set it."""
        meta = node["metadata"]
        tags = meta.get("labels") or {}
        pool = self.env.selecting_pool(tags)
        if pool is None:
            return node
        own = {labels.POOL: pool.name, labels.ENVIRONMENT: self.env.name}
        return {**node, "metadata": {**meta, "labels": {**tags, **own}}}


def target_of(stack: str | None, kubeconfig: Path | None, context: str | None) -> Target:
    """The stack's, or that of a kubeconfig. Raises InputError if both are given."""
    if kubeconfig is None:
        if context is not None:
            raise InputError("--context", "is given without --kubeconfig", "give both, or name a stack")
        name = stack or MAIN_STACK
        paths = Paths.here(name)
        return Target(name, load_environment(name, paths), paths)
    if stack is not None:
        raise InputError("--kubeconfig", f"is given beside stack {stack}", "give one of the two")
    from gpuform.adopt import declare, objects

    with cluster_failures(declare.NAME, kubeconfig, "--kubeconfig"):
        found = objects.read_cluster(kubeconfig, context)
    cluster = {"kind": "existing", "kubeconfig": str(kubeconfig.absolute())}
    adopted = declare.adopt(found, cluster)
    return Target(
        name=context or "cluster",
        env=adopted.environment,
        paths=Paths.anywhere(),
        kubeconfig=kubeconfig,
        context=context,
        notes=tuple(f"in no pool: {error}" for error in adopted.without_pool),
    )


def read_running(source: Path, context: str | None, kinds: Sequence[Kind]) -> Found:
    """Objects of a cluster. Raises InputError for what is neither a kubeconfig nor a dump."""
    from gpuform.adopt import objects

    if not objects.is_kubeconfig(source):
        if context is not None:
            raise InputError("--context", f"{source} is no kubeconfig", "leave it out")
        return objects.read_dump(source, kinds)
    with cluster_failures(source.name, source, "--from"):
        return objects.read_cluster(source, context, kinds)
