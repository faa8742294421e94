"""The MIG layout that a node reports, and the one that it should have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpuform.provider.nodes.cluster import Manifest, labels
from infra.model.base.labels import GPU_COUNT, GPU_UNHEALTHY
from infra.model.base.quantities import whole_number

CONFIG = "nvidia.com/mig.config"
STATE = "nvidia.com/mig.config.state"
NOTE = "gpuform.io/relayout"
LAYOUT = "gpuform.io/mig-layout"
DISABLED = "all-disabled"  # NVIDIA's name for GPUs without MIG
_SLICES = "nvidia.com/mig-"
_DEPLOY, _PAUSED = "nvidia.com/gpu.deploy.", "paused-for-mig-change"


@dataclass(frozen=True)
class Layout:
    """A layout: its name in the mig-parted configuration, and the resources that each node then offers.

    ``content`` says which layout a chosen name stands for; empty for a name that spells its layout.
    """

    config: str
    offers: Mapping[str, Any]
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
    def from_node(cls, node: Manifest) -> Note | None:
        """The note on ``node``; None if it is missing or cannot be read."""
        text = (node["metadata"].get("annotations") or {}).get(NOTE)
        try:
            note = json.loads(text) if text else None
            return cls(str(note["source"]), str(note["target"]), bool(note["cordoned"])) if note else None
        except (ValueError, KeyError, TypeError):
            return None


def mig_config(node: Manifest) -> str:
    """The layout that the node's label requests."""
    return labels(node).get(CONFIG, "")


def mig_state(node: Manifest) -> str:
    """State that NVIDIA's MIG manager reports: pending, rebooting, success, failed, or empty."""
    return labels(node).get(STATE, "")


def has_ended(node: Manifest) -> bool:
    """Whether the MIG manager has said how its last change ended."""
    return mig_state(node) in ("success", "failed")


def resumed(node: Manifest) -> dict[str, str | None]:
    """Labels that start the operands which the MIG manager has paused; empty if it has paused none.

    It starts them itself before it says how a change ended, but not if it gave up or was killed, nor if it
    fails after a success in the same process [mig-parted 0.15, pkg/mig/reconfigure/reconfigure.go].
    """
    return {
        key: "true" for key, value in labels(node).items() if key.startswith(_DEPLOY) and value == _PAUSED
    }


def offers_of(node: Manifest, offers: Mapping[str, Any]) -> Mapping[str, int] | None:
    """What this node is to offer: ``offers`` may say it by the number of GPUs; None for another number."""
    is_by_count = any(isinstance(item, Mapping) for item in offers.values())
    return offers.get(labels(node).get(GPU_COUNT, "")) if is_by_count else offers


def differences(node: Manifest, layout: Layout) -> list[str]:
    """Differences between what the node offers and ``wanted``; empty if it offers just that.

    Every wanted resource must have its count (absent is 0); no other MIG slice may be offered.
    """
    return _differences(node, "allocatable", layout)


def is_requested(node: Manifest, layout: Layout) -> bool:
    """Whether the node's label requests this layout, and not another one of the same name.

    The MIG manager acts only on a change of the label. So an annotation records what a chosen name stood for
    when the label was set; without that annotation, the label alone counts.
    """
    content = (node["metadata"].get("annotations") or {}).get(LAYOUT)
    return mig_config(node) == layout.config and (not layout.content or content in (None, layout.content))


def is_applied(node: Manifest, layout: Layout) -> bool:
    """Whether nothing is left to do: label, state and resources are right and no relayout is noted.

    An unhealthy GPU is not a difference of layout, and waiting for it would block every update: what the
    device plugin calls unhealthy stays in the capacity, and a node tainted as unhealthy is being handled
    already.
    """
    settled = is_requested(node, layout) and mig_state(node) == "success" and Note.from_node(node) is None
    settled = settled and not resumed(node)
    taints = {taint["key"] for taint in (node.get("spec") or {}).get("taints") or ()}
    return settled and (
        not differences(node, layout) or not _differences(node, "capacity", layout) or GPU_UNHEALTHY in taints
    )


def _differences(node: Manifest, amounts: str, layout: Layout) -> list[str]:
    """``amounts`` is the list in ``status`` to compare: allocatable or capacity."""
    offered = (node.get("status") or {}).get(amounts) or {}
    slices = {key: 0 for key in offered if key.startswith(_SLICES)}
    wanted = offers_of(node, layout.offers)
    if wanted is None:
        return [f"{GPU_COUNT} is {labels(node).get(GPU_COUNT, 'unset')}"]
    return [
        f"{key} {offered.get(key, 0)} instead of {count}"
        for key, count in sorted({**slices, **wanted}.items())
        if whole_number(offered.get(key, 0)) != count
    ]


def release_patch(node: Manifest, config: str = "") -> Manifest:
    """The patch that takes a layout off a node; empty if nothing is to be done.

    Removes the label if it is ``config`` or the target of a killed run, and what a change that has not ended
    leaves behind; uncordons a node that such a run cordoned.
    """
    note, metadata = Note.from_node(node), Manifest()
    if mig_config(node) and mig_config(node) in (config, note and note.target):
        state = {} if has_ended(node) else {STATE: None}
        metadata = {"labels": {CONFIG: None, **state, **resumed(node)}, "annotations": {LAYOUT: None}}
    if note:
        metadata["annotations"] = {**metadata.get("annotations", {}), NOTE: None}
    uncordon = {"spec": {"unschedulable": None}} if note and note.cordoned else {}
    return {"metadata": metadata, **uncordon} if metadata else {}


def is_under_way(node: Manifest, layout: Layout) -> bool:
    """Whether the label is set and has not failed, so that only waiting remains."""
    return is_requested(node, layout) and mig_state(node) != "failed" and Note.from_node(node) is None


def is_reset(node: Manifest, layout: Layout) -> bool:
    """Whether the GPU operator wrote its default over the label that was set.

    It labels nodes from a cache, without their resourceVersion, so it may not see a label that is new
    [gpu-operator, controllers/nodelabeling_controller.go, labelGPUNodes].
    """
    return mig_config(node) == DISABLED != layout.config
