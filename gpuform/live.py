"""The kubeconfig of a stack's own cluster, wherever that is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpuform import scratch
from gpuform.errors import Failure
from gpuform.kubeconfigs import FOLDER
from gpuform.paths import Paths
from gpuform.status import cluster_of
from infra.model.aws import AwsCluster
from infra.model.environment import Environment
from infra.model.openstack import OpenstackCluster

if TYPE_CHECKING:
    from gpuform.engine import Engine


MADE = (AwsCluster, OpenstackCluster)
"""Clusters that a stack makes, so that how one gets to them is an output of it."""


@contextmanager
def access(env: Environment, paths: Paths, stack: str) -> Iterator[tuple[Path, str | None]]:
    """Kubeconfig and context for who only looks at the cluster: at a cloud, what the state says.

    Without a declared state it is the embedded cluster, on which such a stack is played; at OpenStack only as
    long as the state beside the checkout has no cluster, either.
    """
    if env.state is None and not _made_from_here(env, paths, stack):
        yield cluster_of(env, paths)
        return
    from gpuform.engine import Engine
    from gpuform.toolchain import Toolchain

    with cluster(env, paths, Engine(paths, Toolchain(paths), say=lambda line: None), stack) as found:
        yield found


@contextmanager
def cluster(env: Environment, paths: Paths, engine: Engine, stack: str) -> Iterator[tuple[Path, str | None]]:
    """Kubeconfig and context; that of a cluster that the stack has made is an output of it, and lies in a
    file of mode 0600 for as long as this lasts.
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
    from gpuform.preflight.openstack.held import held

    found = held(paths, stack)
    return found is not None and bool(found.clusters)
