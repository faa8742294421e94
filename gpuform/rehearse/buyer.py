"""Whoever makes nodes in a rehearsal, as far as the rest of it asks; by itself nobody."""

from __future__ import annotations

from collections.abc import Mapping

from gpuform.rehearse.cluster import Cluster
from gpuform.rehearse.honesty import Way
from gpuform.rehearse.outcome import Refusal
from gpuform.rehearse.watch import Watch


class Buyer:
    """Nobody: every node is there from the beginning."""

    way: Way = "none"
    quiet_s = 10.0
    """After so long without a change nothing comes any more."""
    gone = "no event says why"
    """Why a node is gone of which no event says it."""

    def paid(self) -> Mapping[str, float | None]:
        """USD per hour of each node that was bought, by its name."""
        return {}

    def unjoined(self, pool: str) -> tuple[str, ...]:
        """Instances of a pool that were bought and never became a node."""
        return ()

    def refusals(self) -> tuple[Refusal, ...]:
        """What there was no capacity for."""
        return ()

    def interrupt(self, watch: Watch, timeout_s: float) -> str:
        """Take a spot node away as AWS does; what came of it, in words."""
        return "no spot node was bought, so none was interrupted"

    def hurry(self, cluster: Cluster) -> str:
        """Have nodes that nobody needs go sooner than declared; what of it is not as declared, in words."""
        return "nobody takes nodes away here: every pool has a fixed number"

    def memory(self) -> Mapping[str, int]:
        """Resident bytes of what buys, by process."""
        return {}

    def troubles(self) -> tuple[str, ...]:
        """What keeps it from buying, in words."""
        return ()
