"""Kubeconfig and context of a stack's own cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpuform.checkout import scratch
from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.kubernetes.kubeconfigs import FOLDER
from gpuform.usage.status import cluster_of
from infra.model.aws import AwsCluster
from infra.model.environment import Environment
from infra.model.openstack import OpenstackCluster

if TYPE_CHECKING:
    from gpuform.engine import Engine
    from gpuform.engine.places import Tools


MADE = (AwsCluster, OpenstackCluster)
"""Clusters that a stack creates, so their kubeconfig is a stack output."""


@contextmanager
def access(env: Environment, paths: Paths, stack: str, tools: Tools) -> Iterator[tuple[Path, str | None]]:
    """Kubeconfig and context for read-only commands; of a cloud cluster, from the state.

    Without a declared state it is the embedded cluster, on which such a stack is simulated; with OpenStack
    only as long as the state beside the checkout has no cluster either.
    """
    if env.state is None and not _made_from_here(env, paths, stack):
        yield cluster_of(env, paths)
        return
    from gpuform.engine import Engine

    with cluster(env, paths, Engine(paths, tools, say=lambda line: None), stack) as found:
        yield found


@contextmanager
def cluster(env: Environment, paths: Paths, engine: Engine, stack: str) -> Iterator[tuple[Path, str | None]]:
    """Kubeconfig and context of the stack's cluster.

    A kubeconfig that is a stack output lies in a file of mode 0600 until the context manager exits.
    """
    if not isinstance(env.cluster, MADE):
        yield cluster_of(env, paths)
        return
    text = engine.outputs(stack, show_secrets=True).get("kubeconfig")
    if not isinstance(text, str) or not text:
        raise Failure(f"stack {stack}", "has no cluster yet", "run `up` first")
    with scratch.folder(paths.state / FOLDER) as folder:
        file = folder / "kubeconfig"
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
        yield file, None


def _made_from_here(env: Environment, paths: Paths, stack: str) -> bool:
    if not isinstance(env.cluster, OpenstackCluster):
        return False
    from gpuform.stack.preflight.openstack.held import held

    found = held(paths, stack)
    return found is not None and bool(found.clusters)
