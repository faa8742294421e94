"""The pool keeper where pods run no code: its own program, beside the cluster, with its own account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuform.paths import Paths
from gpuform.rehearse.following import Following
from gpuform.rehearse.program import Pod, Program, Where
from infra.plan.pool_keeper import NAME
from infra.plan.sharing import NAMESPACE

EVERY_S = 2.0  # until every node is listed anew; half a minute in its pod


class Keeper(Program):
    """The pool keeper of one cluster; what it says is in ``log``, in its folder."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        """Looks at nothing yet."""
        super().__init__(Where(NAME, NAMESPACE, "the pool keeper"), kubeconfig, folder, EVERY_S)


@contextmanager
def pool_keeper(paths: Paths, tools: object, folder: Path) -> Iterator[Following[Pod]]:
    """The keeper of the control plane of ``paths``, while its Deployment is there; ``folder`` is its own.

    ``tools`` is not asked for anything: the keeper needs this very Python and nothing else.
    """
    with Keeper(paths.kubeconfig, folder).following() as following:
        yield following
