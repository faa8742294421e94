"""Runs the readiness gate's program beside the cluster, with its own account, since pods run no code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuform.paths import Paths
from gpuform.rehearse.following import Following
from gpuform.rehearse.program import Pod, Program, Where
from infra.plan.readiness_gate import NAME
from infra.plan.sharing import NAMESPACE

EVERY_S = 0.2  # between two looks of the gate; five seconds in its pod


class Gate(Program):
    """The readiness gate of one cluster; its output is in the file ``log`` of its folder."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        super().__init__(Where(NAME, NAMESPACE, "the readiness gate"), kubeconfig, folder, EVERY_S)


@contextmanager
def readiness_gate(paths: Paths, tools: object, folder: Path) -> Iterator[Following[Pod]]:
    """Run the gate for the control plane of ``paths`` while its Deployment exists, in its own ``folder``.

    ``tools`` is unused: the gate needs only this Python.
    """
    with Gate(paths.kubeconfig, folder).following() as following:
        yield following
