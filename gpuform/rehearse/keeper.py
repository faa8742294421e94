"""Runs the pool keeper's program beside the cluster, with its own account, since pods run no code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuform.paths import Paths
from gpuform.rehearse.following import Following
from gpuform.rehearse.program import Pod, Program, Where
from infra.plan.pool_keeper import NAME
from infra.plan.sharing import NAMESPACE

EVERY_S = 2.0  # between two lists of all nodes; half a minute in its pod


class Keeper(Program):
    """The pool keeper of one cluster; its output is in the file ``log`` of its folder."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        super().__init__(Where(NAME, NAMESPACE, "the pool keeper"), kubeconfig, folder, EVERY_S)


@contextmanager
def pool_keeper(paths: Paths, tools: object, folder: Path) -> Iterator[Following[Pod]]:
    """Run the keeper for the control plane of ``paths`` while its Deployment exists, in its own ``folder``.

    ``tools`` is unused: the keeper needs only this Python.
    """
    with Keeper(paths.kubeconfig, folder).following() as following:
        yield following
