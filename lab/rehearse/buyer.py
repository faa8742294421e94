"""The interface of what creates nodes in a rehearsal; the base class creates none."""

from __future__ import annotations

from collections.abc import Mapping

from gpuform.usage.rehearsal import Refusal
from lab.rehearse.cluster import Cluster
from lab.rehearse.honesty import Way
from lab.rehearse.watch import Watch


class Buyer:
    """Buys nothing: every node exists from the start."""

    way: Way = "none"
    quiet_s = 10.0
    """Seconds without a change after which no further change is expected."""
    gone = "no event gives a reason"
    """The reason shown for a removed node without an event."""

    def paid(self) -> Mapping[str, float | None]:
        """USD per hour of each bought node, by name."""
        return {}

    def unjoined(self, pool: str) -> tuple[str, ...]:
        """Instances of a pool that were bought and never became a node."""
        return ()

    def refusals(self) -> tuple[Refusal, ...]:
        return ()

    def interrupt(self, watch: Watch, timeout_s: float) -> str:
        """Interrupt a spot node as AWS does; returns the result in words."""
        return "no spot node was launched, so none was interrupted"

    def hurry(self, cluster: Cluster) -> str:
        """Have idle nodes removed sooner than declared; returns, in words, what is not as declared."""
        return "no nodes are removed: every pool has a fixed size"

    def memory(self) -> Mapping[str, int]:
        """Resident bytes of the buyer's processes, by name."""
        return {}

    def troubles(self) -> tuple[str, ...]:
        return ()
