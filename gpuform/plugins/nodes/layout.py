"""What a node says about its MIG layout, and what it was promised to say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from gpuform.plugins.nodes.cluster import Manifest, labels
from infra.model.labels import GPU_UNHEALTHY
from infra.model.quantity import whole

CONFIG = "nvidia.com/mig.config"
STATE = "nvidia.com/mig.config.state"
NOTE = "gpuform.io/relayout"
LAYOUT = "gpuform.io/mig-layout"
_SLICES = "nvidia.com/mig-"


@dataclass(frozen=True)
class Wanted:
    """A layout: its name in the mig-parted configuration, and what each node then offers.

    ``content`` says which layout a chosen name stands for; empty for a name that spells its layout.
    """

    config: str
    offers: Mapping[str, int]
    content: str = ""


@dataclass(frozen=True)
class Note:
    """What a relayout that is under way leaves on its node, so that the next run can finish or undo it.

    ``source`` is the label before it began (empty for none), ``target`` the layout it leads to, ``cordoned``
    whether it was this relayout that closed the node to new pods.
    """

    source: str
    target: str
    cordoned: bool

    def text(self) -> str:
        """The annotation's value."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def on(cls, node: Manifest) -> Note | None:
        """The note on ``node``; one that cannot be read counts as none."""
        text = (node["metadata"].get("annotations") or {}).get(NOTE)
        try:
            found = json.loads(text) if text else None
            return cls(str(found["source"]), str(found["target"]), bool(found["cordoned"])) if found else None
        except (ValueError, KeyError, TypeError):
            return None


def label(node: Manifest) -> str:
    """The layout that the node was told to have."""
    return labels(node).get(CONFIG, "")


def state(node: Manifest) -> str:
    """How far NVIDIA's MIG manager is with it: pending, rebooting, success, failed, or empty."""
    return labels(node).get(STATE, "")


def differences(node: Manifest, wanted: Wanted) -> list[str]:
    """What the node offers that it should not, or does not that it should; empty when it is as promised.

    Every resource in the promise must have its count (absent is 0); no other MIG slice may be offered.
    """
    return _differences(node, "allocatable", wanted)


def told(node: Manifest, wanted: Wanted) -> bool:
    """Whether the node was told to have this layout, and no other one of the same name.

    The MIG manager acts on a change of the label alone. So what a chosen name stood for when it was told is
    noted on the node; a node without that note is taken at its label's word.
    """
    noted = (node["metadata"].get("annotations") or {}).get(LAYOUT)
    return label(node) == wanted.config and (not wanted.content or noted in (None, wanted.content))


def done(node: Manifest, wanted: Wanted) -> bool:
    """Whether nothing is left to do: label, state and offer are right and no relayout is noted.

    A broken GPU is no matter of its layout, and to wait for it would hold up every update: what the device
    plugin calls unhealthy stays in the capacity, and a node that was put out of use is looked after already.
    """
    settled = told(node, wanted) and state(node) == "success" and Note.on(node) is None
    taints = {taint["key"] for taint in (node.get("spec") or {}).get("taints") or ()}
    return settled and (
        not differences(node, wanted) or not _differences(node, "capacity", wanted) or GPU_UNHEALTHY in taints
    )


def _differences(node: Manifest, amounts: str, wanted: Wanted) -> list[str]:
    """Of what the node has as ``amounts``, which of its two lists in ``status``."""
    there = (node.get("status") or {}).get(amounts) or {}
    slices = {key: 0 for key in there if key.startswith(_SLICES)}
    return [
        f"{key} {there.get(key, 0)} instead of {count}"
        for key, count in sorted({**slices, **wanted.offers}.items())
        if whole(there.get(key, 0)) != count
    ]


def letting_go(node: Manifest, config: str = "") -> Manifest:
    """The patch of a node that is to have a layout no more; empty where nothing is to be done.

    The label goes where it says ``config``, or where a killed run led; what that has closed is opened.
    """
    note, metadata = Note.on(node), Manifest()
    if label(node) and label(node) in (config, note and note.target):
        metadata = {"labels": {CONFIG: None}, "annotations": {LAYOUT: None}}
    if note:
        metadata["annotations"] = {**metadata.get("annotations", {}), NOTE: None}
    opened = {"spec": {"unschedulable": None}} if note and note.cordoned else {}
    return {"metadata": metadata, **opened} if metadata else {}


def under_way(node: Manifest, wanted: Wanted) -> bool:
    """Whether the node has been told already and has not failed: to wait is all there is to do."""
    return told(node, wanted) and state(node) != "failed" and Note.on(node) is None
