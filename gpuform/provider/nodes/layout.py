"""The MIG layout that a node reports, and the one that it should have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from gpuform.provider.nodes.cluster import Manifest, labels
from infra.model.amounts import whole
from infra.model.labels import GPU_UNHEALTHY

CONFIG = "nvidia.com/mig.config"
STATE = "nvidia.com/mig.config.state"
NOTE = "gpuform.io/relayout"
LAYOUT = "gpuform.io/mig-layout"
_SLICES = "nvidia.com/mig-"


@dataclass(frozen=True)
class Wanted:
    """A layout: its name in the mig-parted configuration, and the resources that each node then offers.

    ``content`` says which layout a chosen name stands for; empty for a name that spells its layout.
    """

    config: str
    offers: Mapping[str, int]
    content: str = ""


@dataclass(frozen=True)
class Note:
    """Record of a relayout in progress on its node, so that the next run can finish or revert it.

    ``source`` is the label before it began (empty if unset), ``target`` the new layout, ``cordoned`` whether
    this relayout cordoned the node.
    """

    source: str
    target: str
    cordoned: bool

    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def on(cls, node: Manifest) -> Note | None:
        """The note on ``node``; None if it is missing or cannot be read."""
        text = (node["metadata"].get("annotations") or {}).get(NOTE)
        try:
            found = json.loads(text) if text else None
            return cls(str(found["source"]), str(found["target"]), bool(found["cordoned"])) if found else None
        except (ValueError, KeyError, TypeError):
            return None


def label(node: Manifest) -> str:
    """The layout that the node's label requests."""
    return labels(node).get(CONFIG, "")


def state(node: Manifest) -> str:
    """State that NVIDIA's MIG manager reports: pending, rebooting, success, failed, or empty."""
    return labels(node).get(STATE, "")


def differences(node: Manifest, wanted: Wanted) -> list[str]:
    """Differences between what the node offers and ``wanted``; empty if it offers just that.

    Every wanted resource must have its count (absent is 0); no other MIG slice may be offered.
    """
    return _differences(node, "allocatable", wanted)


def told(node: Manifest, wanted: Wanted) -> bool:
    """Whether the node's label requests this layout, and not another one of the same name.

    The MIG manager acts only on a change of the label. So an annotation records what a chosen name stood for
    when the label was set; without that annotation, the label alone counts.
    """
    noted = (node["metadata"].get("annotations") or {}).get(LAYOUT)
    return label(node) == wanted.config and (not wanted.content or noted in (None, wanted.content))


def done(node: Manifest, wanted: Wanted) -> bool:
    """Whether nothing is left to do: label, state and resources are right and no relayout is noted.

    An unhealthy GPU is not a difference of layout, and waiting for it would block every update: what the
    device plugin calls unhealthy stays in the capacity, and a node tainted as unhealthy is being handled
    already.
    """
    settled = told(node, wanted) and state(node) == "success" and Note.on(node) is None
    taints = {taint["key"] for taint in (node.get("spec") or {}).get("taints") or ()}
    return settled and (
        not differences(node, wanted) or not _differences(node, "capacity", wanted) or GPU_UNHEALTHY in taints
    )


def _differences(node: Manifest, amounts: str, wanted: Wanted) -> list[str]:
    """``amounts`` is the list in ``status`` to compare: allocatable or capacity."""
    there = (node.get("status") or {}).get(amounts) or {}
    slices = {key: 0 for key in there if key.startswith(_SLICES)}
    return [
        f"{key} {there.get(key, 0)} instead of {count}"
        for key, count in sorted({**slices, **wanted.offers}.items())
        if whole(there.get(key, 0)) != count
    ]


def letting_go(node: Manifest, config: str = "") -> Manifest:
    """The patch that takes a layout off a node; empty if nothing is to be done.

    Removes the label if it is ``config`` or the target of a killed run; uncordons a node that such a run
    cordoned.
    """
    note, metadata = Note.on(node), Manifest()
    if label(node) and label(node) in (config, note and note.target):
        metadata = {"labels": {CONFIG: None}, "annotations": {LAYOUT: None}}
    if note:
        metadata["annotations"] = {**metadata.get("annotations", {}), NOTE: None}
    opened = {"spec": {"unschedulable": None}} if note and note.cordoned else {}
    return {"metadata": metadata, **opened} if metadata else {}


def under_way(node: Manifest, wanted: Wanted) -> bool:
    """Whether the label is set and has not failed, so that only waiting remains."""
    return told(node, wanted) and state(node) != "failed" and Note.on(node) is None
