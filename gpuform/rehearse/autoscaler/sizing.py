"""How many nodes each group needs more, and which of its nodes nobody needs: decided, and nothing done.

As cluster-autoscaler does it: what a node of a group offers is learned from one that is there and ready; of
an empty group only cores, memory and Magnum's labels of the group are known (its Magnum provider's
``MagnumNodeTemplate``), so it never grows for a GPU. Of several groups that would do, the first declared one
grows; the real one takes any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.rehearse.autoscaler.fit import Room, requests, room
from gpuform.rehearse.autoscaler.group import Group
from infra.model import labels

UNNEEDED_BELOW = 0.5
"""cluster-autoscaler's ``--scale-down-utilization-threshold``, of cores and of memory, the larger share."""

Json = Mapping[str, Any]


@dataclass
class Growth:
    """Nodes to order by group, and for each pod that stays without one why, by namespace and name."""

    orders: dict[str, int] = field(default_factory=dict)
    helped: dict[tuple[str, str], str] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """Nodes and pods as the API has them."""

    nodes: Sequence[Json]
    pods: Sequence[Json]

    def on(self, node: Json) -> list[Json]:
        """Pods that take something of a node."""
        name = node["metadata"]["name"]
        return [pod for pod in self.pods if pod["spec"].get("nodeName") == name and not _over(pod)]

    def of(self, group: Group) -> list[Json]:
        """The group's nodes, the oldest first."""
        mine = [node for node in self.nodes if group.has(node)]
        return sorted(mine, key=lambda one: (one["metadata"].get("creationTimestamp", ""), _name(one)))

    @property
    def unbound(self) -> list[tuple[str, str]]:
        """Pods without a node, whether the scheduler has looked at them yet or not."""
        return [_key(pod) for pod in self.pods if not pod["spec"].get("nodeName") and not _over(pod)]

    @property
    def waiting(self) -> list[Json]:
        """Pods that the scheduler has found no node for."""
        found = [pod for pod in self.pods if _unschedulable(pod)]
        return sorted(found, key=_key)


def growth(groups: Sequence[Group], site: Site) -> Growth:
    """What the groups should grow by for the pods that wait."""
    found = Growth()
    open_rooms = [room(node, site.on(node)) for node in site.nodes if _schedulable(node)]
    templates = {group.name: _template(group, site) for group in groups}
    for group in groups:  # what was ordered, and has not become what it is to be
        template = templates[group.name]
        late = [node for node in site.of(group) if template and not _as_good(node, template)]
        open_rooms += [_copy(template, _name(node)) for node in late if template]
    for pod in site.waiting:
        there = next((one for one in open_rooms if one.takes(pod)), None)
        if there:
            there.place(pod)
        else:
            _order(groups, templates, site, pod, open_rooms, found)
    return found


def _order(
    groups: Sequence[Group],
    templates: Mapping[str, Room | None],
    site: Site,
    pod: Json,
    open_rooms: list[Room],
    found: Growth,
) -> None:
    """Open another node for one pod, or note why there is none."""
    reasons = []
    for group in groups:
        template = templates[group.name]
        size = len(site.of(group)) + found.orders.get(group.name, 0)
        if template is None or not _copy(template, template.name).takes(pod):
            continue
        if size >= group.most:
            reasons.append(f"group {group.name} has all of its {group.most} nodes")
            continue
        made = _copy(template, f"{group.name}-new")
        made.place(pod)
        open_rooms.append(made)
        found.orders[group.name] = found.orders.get(group.name, 0) + 1
        found.helped[_key(pod)] = group.name
        return
    found.refused[_key(pod)] = "; ".join(reasons) or "no node of a group that grows would take it"


def _template(group: Group, site: Site) -> Room | None:
    """What another node of the group would offer; None where there is a node and it is not ready yet."""
    mine = site.of(group)
    if not mine:
        return Room(group.name, group.labels_when_empty, (), Counter(group.known_when_empty))
    model = next((node for node in mine if _schedulable(node)), None)
    if model is None:
        return None
    return room(model, [pod for pod in site.on(model) if daemon(pod)])


def _copy(template: Room, name: str) -> Room:
    return Room(name, template.labels, template.taints, Counter(template.free))


def _as_good(node: Json, template: Room) -> bool:
    """Whether a node has become what others of its group are: ready, let in, and offering as much."""
    if not _schedulable(node):
        return False
    known = {one["key"] for one in template.taints}
    has = {one["key"] for one in node.get("spec", {}).get("taints", [])}
    unlabelled = labels.POOL in template.labels and labels.POOL not in node["metadata"].get("labels", {})
    if unlabelled or not has <= known:
        return False
    allocatable = node.get("status", {}).get("allocatable", {})
    return all(key in allocatable for key, amount in template.free.items() if amount > 0)


@dataclass(frozen=True)
class Unneeded:
    """A node that may go, and why, in words; pods on it have to move first."""

    node: str
    group: str
    why: str


def unneeded(groups: Sequence[Group], site: Site) -> Iterator[Unneeded]:
    """Nodes that nobody needs: the empty ones; where there are none, one whose pods have room elsewhere."""
    size = {group.name: sum(map(_schedulable, site.of(group))) for group in groups}
    empty: list[Unneeded] = []
    moving: list[Unneeded] = []
    for group in groups:
        for node in reversed(site.of(group)):
            if size[group.name] <= group.least or not _schedulable(node):
                continue
            staying = [pod for pod in site.on(node) if not daemon(pod)]
            if not staying:
                size[group.name] -= 1
                empty.append(Unneeded(_name(node), group.name, "Empty: no pod was left on it"))
            elif _little_used(node, staying) and _can_move(node, staying, site):
                why = "Underutilized: less than half of it is asked for, and its pods fit on other nodes"
                moving.append(Unneeded(_name(node), group.name, why))
    yield from empty or moving[:1]


def keeps(groups: Sequence[Group], site: Site) -> Iterator[str]:
    """Why nodes of groups that shrink are still there, in words."""
    for group in groups:
        there = site.of(group)
        if there and len(there) <= group.least:
            yield f"group {group.name} keeps at least {group.least} of its nodes"
            continue
        for node in there:
            staying = [pod for pod in site.on(node) if not daemon(pod)]
            if staying and not _little_used(node, staying):
                yield f"{_name(node)}: half of it or more is asked for"
            elif staying and not _can_move(node, staying, site):
                yield f"{_name(node)}: its pods fit nowhere else, or nobody would make them again"


def _little_used(node: Json, pods: Iterable[Json]) -> bool:
    """By cores and memory alone: Magnum's provider counts GPUs only on nodes with a label of its own."""
    whole, asked = room(node, ()).free, Counter[str]()
    for pod in pods:
        asked.update(requests(pod))
    shares = [asked[key] / whole[key] for key in ("cpu", "memory") if whole[key]]
    return max(shares, default=0.0) < UNNEEDED_BELOW


def _can_move(node: Json, pods: Iterable[Json], site: Site) -> bool:
    """Whether every pod has a controller that makes it again, and a place on another node."""
    others = [
        room(one, site.on(one)) for one in site.nodes if _schedulable(one) and _name(one) != _name(node)
    ]
    for pod in pods:
        if not any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences", [])):
            return False
        there = next((one for one in others if one.takes(pod)), None)
        if there is None:
            return False
        there.place(pod)
    return True


def daemon(pod: Json) -> bool:
    """Whether the pod is its node's own, and so keeps no node."""
    kinds = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", [])}
    return bool(kinds & {"DaemonSet", "Node"})


def _unschedulable(pod: Json) -> bool:
    if pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"] or daemon(pod):
        return False
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)


def _schedulable(node: Json) -> bool:
    conditions = {one["type"]: one["status"] for one in node.get("status", {}).get("conditions", [])}
    going = "deletionTimestamp" in node["metadata"] or node.get("spec", {}).get("unschedulable")
    return conditions.get("Ready") == "True" and not going


def _over(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _name(node: Json) -> str:
    return str(node["metadata"]["name"])


def _key(pod: Json) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]
