"""The played cluster-autoscaler as who makes nodes in a rehearsal."""

from __future__ import annotations

from gpuform.rehearse.autoscaler.keeper import HURRIED_S, UNNEEDED_S, Autoscaler
from gpuform.rehearse.buyer import Buyer
from gpuform.rehearse.cluster import Cluster


class Autoscaled(Buyer):
    """Groups of Magnum's, by a played cluster-autoscaler."""

    way = "autoscaler"
    quiet_s = 15.0
    """It looks every second, and waits five for a node that nobody needs."""

    def __init__(self, played: Autoscaler) -> None:
        """It runs."""
        self._played = played

    def hurry(self, cluster: Cluster) -> str:
        """Have it wait seconds instead of its ten minutes."""
        self._played.hurry()
        return (
            "cluster-autoscaler takes a node that was not needed for "
            f"{UNNEEDED_S / 60:.0f} minutes, here (played) for {HURRIED_S:.0f} s"
        )

    def stays(self) -> tuple[str, ...]:
        """Why nodes of groups that shrink are left."""
        return self._played.stays

    def troubles(self) -> tuple[str, ...]:
        """What keeps it from growing groups, in words."""
        return (f"the played cluster-autoscaler: {self._played.trouble}",) if self._played.trouble else ()
