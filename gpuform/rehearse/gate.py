"""The readiness gate where pods run no code: its own program, beside the cluster, with its own account."""

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
    """The gate of one cluster; what it says is in ``log``, in its folder."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        """Looks at nothing yet."""
        super().__init__(Where(NAME, NAMESPACE, "the readiness gate"), kubeconfig, folder, EVERY_S)


@contextmanager
def readiness_gate(paths: Paths, tools: object, folder: Path) -> Iterator[Following[Pod]]:
    """The gate of the control plane of ``paths``, while its Deployment is there; ``folder`` is its own.

    ``tools`` is not asked for anything: the gate needs this very Python and nothing else.
    """
    with Gate(paths.kubeconfig, folder).following() as following:
        yield following
