"""kr8s over our own session: kr8s ignores impersonation, token files and most settings of exec plugins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuform.kubernetes.kubeconfig import usable
from gpuform.kubernetes.session import opened

if TYPE_CHECKING:
    import kr8s


def api(kubeconfig: Path | str, context: str | None = None) -> kr8s.Api:
    """Raises InputError for a field that cannot be honoured, OSError for a kubeconfig without a cluster.

    Requests raise OSError, too, if the credentials are unusable.
    """
    import kr8s

    access = usable(kubeconfig, context)
    # Without credentials: the session has them.
    server = replace(access, cluster={"server": access.server}, user={})
    found = kr8s.Api(kubeconfig=server.document, bypass_factory=True)

    async def create_session() -> None:
        if found._session:
            await found._session.aclose()
        found._session = await opened(access)

    found._create_session = create_session  # type: ignore[method-assign]
    return found
