"""A node of a Magnum node group, replaced: its pods go first, then its server, and the group gets another.

Magnum has no call that replaces a node. So the group is made one smaller, and by that very server, and then
as large as it was; what the GPUs of the first free, the second may need. Where the group may not get smaller
(``min_node_count``), its size stays in the same call, and Heat, which the call goes to, makes another server
in place of the one that it is told to remove. A group that an autoscaler sizes is not made larger again: the
autoscaler does that, if pods need it.

Each rebuild is a note in the loop's memory (``State.rebuilds``), which says its ``stage`` and is written
before anything is done; every stage begins with what is there, so that a loop that was killed in between goes
on where it was. It lies beside the health loop, in the same ConfigMap. Standard library alone, Python 3.11 or
newer.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # isolated, the interpreter does not look there by itself
if TYPE_CHECKING:
    from infra.incluster import evicting, magnum_api
    from infra.incluster.cluster import Cluster
else:
    import evicting
    import magnum_api

RECORD = "gpuform.io/gpu-health"
DRAIN_S = 3600.0  # that its pods may take, whose budgets may not bear their eviction at once
WAIT_S = 7200.0  # that Magnum may take for one step; a cluster's own time-out is an hour
BEGIN_S = 120.0  # until a call that Magnum has taken shows in the group
TRIES = 3

Json = dict[str, Any]


@dataclass(frozen=True)
class Move:
    """What became of a rebuild: ``after`` is its note from now on, None when it is over; ``failed`` when a
    person has to go on.
    """

    after: Json | None
    said: str = ""
    failed: bool = False


class Rebuilder:
    """Takes one step at a time; raises what the cluster and Magnum raise where they are away."""

    def __init__(self, cluster: Cluster, cloud: magnum_api.Magnum, pace: float = 1.0) -> None:
        """Does nothing yet; ``pace`` divides its durations."""
        self._cluster, self._cloud, self._pace = cluster, cloud, pace

    def look(self, one: Json, node: Json | None, now: float) -> Move:
        """The next step of a rebuild; ``node`` is its node, if that is still there."""
        try:
            return self._looked(one, node, now)
        except (magnum_api.Missing, magnum_api.Refused) as error:
            tries = int(one["tries"]) + 1
            if isinstance(error, magnum_api.Missing) or tries >= TRIES:
                return fails(one, str(error))
            return Move({**one, "tries": tries}, str(error))

    def _looked(self, one: Json, node: Json | None, now: float) -> Move:
        if one["to"] is None and node is None:
            return Move(None, "the node is gone, whoever took it away")
        if one["to"] is None and RECORD not in ((node or {})["metadata"].get("annotations") or {}):
            return Move(None, "the node was let back in")
        if one["stage"] == "drain":
            return self._drain(one, node or {}, now)
        group = self._cloud.group(one["group"])
        if group["status"].endswith("_IN_PROGRESS"):
            return self.waits(one, now, f"node group {one['group']} is {group['status']}")
        stage = {"remove": self._remove, "removing": self._removing, "refill": self._refill}
        return stage.get(one["stage"], self._filling)(one, node, group, now)

    def _drain(self, one: Json, node: Json, now: float) -> Move:
        self._cloud.there()  # else nothing of it would come to an end
        name = node["metadata"]["name"]
        left = evicting.in_the_way(self._cluster.pods(name))
        lost = [evicting.name_of(pod) for pod in left if not evicting.comes_back(pod)]
        if lost:
            return fails(one, f"no controller would bring back {', '.join(lost)}")
        if not left:
            return Move({**one, "stage": "remove", "since": now}, "its pods are gone")
        names = ", ".join(sorted(evicting.name_of(pod) for pod in left))
        if now - one["since"] > DRAIN_S / self._pace:
            return fails(one, f"its pods are still there after {DRAIN_S:g} s: {names}")
        for pod in left:
            evicting.evict(self._cluster, pod)
        return Move(one, f"waits for its pods to go: {names}")

    def _remove(self, one: Json, node: Json | None, group: Json, now: float) -> Move:
        """Say how large the group shall be, then ask for it; that it was asked for shows in the group."""
        count, least = int(group["node_count"]), int(group["min_node_count"] or 0)
        if one["to"] is None:
            smaller = count - 1 if count - 1 >= least else count
            return Move({**one, "from": count, "to": smaller, "since": now})
        if count == one["to"] != one["from"] or node is None:
            return Move({**one, "stage": "removing", "since": now})
        if count != one["from"]:
            return Move({**one, "from": None, "to": None})  # it has another size by now: once more from there
        return self._asks_to_remove(one, now)

    def _asks_to_remove(self, one: Json, now: float) -> Move:
        self._cloud.resize(one["group"], one["to"], (one["server"],))
        said = (
            f"Magnum removes server {one['server']}: {one['group']} from {one['from']} to {one['to']} nodes"
        )
        return Move({**one, "stage": "removing", "since": now}, said)

    def _removing(self, one: Json, node: Json | None, group: Json, now: float) -> Move:
        count, smaller = int(group["node_count"]), one["to"] != one["from"]
        if group["status"].endswith("_FAILED"):
            return self._again(one, group, now, one["to"], (one["server"],))
        if count not in (one["from"], one["to"]):
            return Move(None, _resized(one, count))
        if (smaller and count == one["from"]) or (not smaller and node is not None):
            if smaller and now - one["since"] > BEGIN_S / self._pace:
                return self._asks_to_remove(one, now)
            return self.waits(one, now, f"server {one['server']} is still there")
        if smaller and not one["elastic"]:
            return Move({**one, "stage": "refill", "since": now}, f"server {one['server']} is gone")
        how = "its autoscaler brings another if pods need it" if smaller else "another has come"
        return Move(None, f"server {one['server']} is gone, and {how}")

    def _refill(self, one: Json, node: Json | None, group: Json, now: float) -> Move:
        count = int(group["node_count"])
        if count == one["to"]:
            self._cloud.resize(one["group"], one["from"])
        elif count != one["from"]:
            return Move(None, _resized(one, count))
        said = f"Magnum makes another node: {one['group']} from {one['to']} to {one['from']} nodes"
        return Move({**one, "stage": "filling", "since": now}, said)

    def _filling(self, one: Json, node: Json | None, group: Json, now: float) -> Move:
        count = int(group["node_count"])
        if group["status"].endswith("_FAILED"):
            return self._again(one, group, now, one["from"])
        if count == one["from"]:
            return Move(None, f"{one['group']} has {count} nodes again, one of them new")
        if count != one["to"]:
            return Move(None, _resized(one, count))
        if now - one["since"] > BEGIN_S / self._pace:
            return Move({**one, "stage": "refill", "since": now})
        return self.waits(one, now, f"node group {one['group']} has {count} nodes")

    def _again(self, one: Json, group: Json, now: float, count: int, remove: tuple[str, ...] = ()) -> Move:
        """The same call once more, which Magnum takes from a group that has failed."""
        why = f"node group {one['group']} is {group['status']}: {group.get('status_reason') or 'no reason'}"
        tries = int(one["tries"]) + 1
        if tries >= TRIES:
            return fails(one, why)
        self._cloud.resize(one["group"], count, remove)
        return Move({**one, "tries": tries, "since": now}, f"{why}; asked again")

    def waits(self, one: Json, now: float, why: str) -> Move:
        """Nothing can be done now; a person is asked where that lasts."""
        if now - one["since"] > WAIT_S / self._pace:
            return fails(one, f"after {WAIT_S:g} s {why}")
        return Move(one, f"waits: {why}")


def _resized(one: Json, count: int) -> str:
    return f"somebody else has given node group {one['group']} {count} nodes, and that stays"


def fails(one: Json, why: str) -> Move:
    """What a person has to know to go on where it stopped."""
    if one["to"] is None:
        return Move(None, f"not replaced by Magnum: {why}", failed=True)
    size = f"it was to have {one['from']} nodes in the end, and lose server {one['server']}"
    return Move(
        None, f"not replaced by Magnum: {why}; look at node group {one['group']}: {size}", failed=True
    )
