"""What the credentials of another project do not find is not gone: Magnum shows a project its own alone."""

from __future__ import annotations

from gpuform.plugins.handler import PluginError, Properties
from gpuform.plugins.openstack.api import Magnum
from gpuform.plugins.properties import reveal


async def require_own(magnum: Magnum, what: str, olds: Properties) -> None:
    """Raise `PluginError` where ``olds`` were made in another project than the one that is asked.

    Else a refresh would take out of the state what is there, and a deletion pass for done. To be called of
    something that was not found.
    """
    owner = str(reveal(olds).get("projectId") or "")
    if not owner:
        return
    asked, _ = await magnum.me()
    if asked and asked != owner:
        raise PluginError(
            f"{what}: is in project {owner}, and the credentials are of project {asked}, which does not see "
            "it; put back cluster.cloud, or the OS_ variables, that lead to the first"
        )
