"""Changes the MIG layout of a node, in steps that a later run can resume.

Cordon the node and write a note; evict the pods that use the GPUs, or refuse; set the label; wait for the MIG
manager, which may reboot the node, and for the device plugin; uncordon and remove the note. The note is an
annotation of the node (`Note`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import ApiError, Unreachable
from gpuform.kubernetes.pods import condition
from gpuform.provider.handler import Call, Cancelled
from gpuform.provider.nodes.cluster import Cluster, Manifest, labels, pod_name
from gpuform.provider.nodes.drain import drain, gpu_pods, in_use_refusal
from gpuform.provider.nodes.layout import (
    CONFIG,
    LAYOUT,
    NOTE,
    STATE,
    Layout,
    Note,
    differences,
    has_ended,
    is_applied,
    is_requested,
    is_reset,
    is_under_way,
    mig_config,
    mig_state,
    resumed,
)

MIG_MANAGER = "nvidia-mig-manager"  # label app of its pods
_REVERT_S = 60.0
"""How long the MIG manager may take to begin with the old layout before the node is uncordoned."""
_GIVES_UP_S, _RETRIES = 310.0, 2
"""The MIG manager gives up, without a word, if a kind of operand has not ended after 5 minutes; it then waits
for another label [mig-parted 0.15, pkg/mig/reconfigure/reconfigure.go, waitForPodsToBeDeleted; #485]."""
_EVENTS = 3  # the newest events of a node are about what has just failed


@dataclass(frozen=True)
class Relayout:
    """The change of one node to one layout; ``timeout_s`` bounds the eviction and the change, each.

    Without ``evicts``, a pod that uses a GPU of the node is an error. ``config_map`` has the layouts; empty
    if it is not known.
    """

    call: Call
    cluster: Cluster
    name: str
    layout: Layout
    timeout_s: float
    evicts: bool = True
    config_map: str = ""

    async def run(self) -> bool:
        """Change the layout; False if the node had it already.

        Raises `OperationError` with the node's reason: then the node has its old label and is uncordoned;
        `Cancelled` before the label is set leaves the node unchanged, later it leaves the note.
        """
        node = await self._get_node()
        if is_applied(node, self.layout):
            return False
        if is_under_way(node, self.layout):
            await self._wait_until_applied(None)
            return True
        await self._wait_for_manager()
        previous = Note.from_node(node)
        note = await self._begin(node, previous)
        try:
            failed = mig_state(node) == "failed" and not _has_same_target(previous, note)
            if failed or not is_requested(node, self.layout):
                await self._free_gpus()
                await self._set_label(node)
        except (OperationError, Cancelled):
            with contextlib.suppress(OperationError):  # the error that led here is the one to show
                await self._finish(note)
            raise
        await self._wait_until_applied(note)
        await self._finish(note)
        return True

    async def _wait_for_manager(self) -> None:
        """Wait while the node's MIG manager still has other layouts, with which it would refuse this one.

        The operator's release is done when the operator knows the new ConfigMap; it replaces the MIG managers
        afterwards, one node after the other.
        """
        start = time.monotonic()
        while old := await self._outdated_manager():
            if time.monotonic() - start > self.timeout_s:
                raise OperationError(
                    f"node {self.name}: the operator has not replaced the MIG manager {old} by one with the "
                    f"ConfigMap {self.config_map} after {self.timeout_s:.0f} s; delete it, and run again"
                )
            await self.call.status(f"node {self.name}: waiting for the MIG manager with {self.config_map}")
            await self.call.sleep(0.5)

    async def _outdated_manager(self) -> str:
        """The node's MIG manager if it does not have the ConfigMap; empty without such a pod."""
        for pod in await self.cluster.pods(self.name) if self.config_map else ():
            volumes = pod["spec"].get("volumes") or ()
            names = {volume["configMap"]["name"] for volume in volumes if "configMap" in volume}
            if labels(pod).get("app") == MIG_MANAGER and self.config_map not in names:
                return pod_name(pod)
        return ""

    async def _begin(self, node: Manifest, previous: Note | None) -> Note:
        """Cordon the node and write the note, in one patch; an existing note is resumed."""
        cordoned = bool((node.get("spec") or {}).get("unschedulable"))
        note = Note(
            source=previous.source if previous else mig_config(node),
            target=self.layout.config,
            cordoned=previous.cordoned if previous else not cordoned,
        )
        change = f"{note.source or 'no layout'} -> {note.target}"
        await self.call.status(f"node {self.name}: {'resuming' if previous else 'starting'} {change}")
        body: dict[str, Any] = {
            "metadata": {"annotations": {NOTE: note.text()}},
            "spec": {"unschedulable": True},
        }
        await self.cluster.patch(self.name, body)
        return note

    async def _free_gpus(self) -> None:
        """Free the GPUs of pods; new ones cannot come, because the node is cordoned."""
        if self.evicts:
            await drain(self.call, self.cluster, self.name, self.timeout_s)
        elif reason := in_use_refusal(self.name, await gpu_pods(self.cluster, self.name)):
            raise OperationError(reason)

    async def _set_label(self, node: Manifest) -> None:
        """Set the label and remove the state, which is that of the previous layout."""
        if mig_config(node) == self.layout.config:  # the MIG manager acts on a change of the label only
            await self.cluster.patch(self.name, {"metadata": {"labels": {CONFIG: None, STATE: None}}})
            await asyncio.sleep(1)  # not cancellable, because the label is gone
        changes = {CONFIG: self.layout.config, STATE: None}
        content = {LAYOUT: self.layout.content or None}
        await self.cluster.patch(self.name, {"metadata": {"labels": changes, "annotations": content}})

    async def _wait_until_applied(self, note: Note | None) -> None:
        """Wait until the node offers the wanted resources; a failure reverts the change.

        A rebooting node is not Ready for a while, nor does an API server on it answer. If nothing changes for
        a while, the label is set again, which a MIG manager at work does not notice.
        """
        since = time.monotonic()
        deadline, pause, retries, seen = since + self.timeout_s, 0.25, _RETRIES, ("", False)
        while True:
            try:
                node = await self._get_node()
            except (Unreachable, ApiError) as error:
                if time.monotonic() > deadline or not _is_transient(error):
                    raise
                await self.call.status(f"node {self.name}: waiting for the cluster to answer: {error}")
                await self.call.sleep(2.0)
                continue
            if has_ended(node) and (clients := resumed(node)):
                node = await self.cluster.patch(self.name, {"metadata": {"labels": clients}})
            if mig_state(node) == "failed":
                await self._fail(node, note, f"layout {self.layout.config} failed")
            missing = differences(node, self.layout)
            if mig_state(node) == "success" and mig_config(node) == self.layout.config and not missing:
                return
            status = f"{CONFIG} is {mig_config(node) or 'unset'}, its state {mig_state(node) or 'unset'}"
            status += f", it offers {', '.join(missing)}" if missing else ""
            if time.monotonic() > deadline:
                fact = f"layout {self.layout.config} not applied after {self.timeout_s:.0f} s: {status}"
                await self._fail(node, note, fact)
            if seen != (status, _is_ready(node)):
                seen, since = (status, _is_ready(node)), time.monotonic()
            stalled = not has_ended(node) and time.monotonic() - since > min(_GIVES_UP_S, self.timeout_s / 3)
            if stalled and retries and not await self._obstacle(node):
                retries, since = retries - 1, time.monotonic()
                await self.call.info(f"node {self.name}: setting {CONFIG} again: {status}")
                await self._set_label(node)
            elif is_reset(node, self.layout):
                await self._set_label(node)
            await self.call.status(f"node {self.name}: waiting for layout {self.layout.config}: {status}")
            await self.call.sleep(pause)
            pause = min(pause * 1.5, 2.0)

    async def _obstacle(self, node: Manifest) -> str:
        """What keeps a MIG manager from its work, and the remedy; empty if nothing does."""
        if not _is_ready(node):
            return "the node is not Ready: look at its console"
        pods = ", ".join(map(pod_name, await gpu_pods(self.cluster, self.name)))
        return f"its GPUs are in use by {pods}: end them" if pods else ""

    async def _fail(self, node: Manifest, note: Note | None, fact: str) -> None:
        reasons = (await self.cluster.warnings(self.name))[:_EVENTS]
        text = f"node {self.name}: {fact}" + (
            f" (its latest warnings: {'; '.join(reasons)})" if reasons else ""
        )
        remedy = await self._obstacle(node)
        if not has_ended(node):
            pod = f"-l app={MIG_MANAGER} --field-selector spec.nodeName={self.name}"
            remedy = remedy or f"restart its MIG manager: `kubectl delete pod -A {pod}`"
        remedy = f"; {remedy}, and run again" if remedy else ""
        if note is None:
            raise OperationError(f"{text}; the label was set before this run and stays as it is{remedy}")
        changes = {CONFIG: note.source or None, STATE: None}
        # If both layouts have the same name, the old one is lost: the next run must set the label again.
        content = {LAYOUT: "failed" if self.layout.content and note.source == self.layout.config else None}
        await self.cluster.patch(self.name, {"metadata": {"labels": changes, "annotations": content}})
        await self._wait_until_reverted(note)
        await self._finish(note)
        raise OperationError(
            f"{text}; its label is {note.source or 'unset'} again, and it accepts pods{remedy}"
        )

    async def _wait_until_reverted(self, note: Note) -> None:
        """Keep the node cordoned until the MIG manager has restored the old layout; no wait without one."""
        start = time.monotonic()
        while note.source and (waited := time.monotonic() - start) < self.timeout_s:
            node = await self._get_node()
            if has_ended(node) or (not mig_state(node) and waited > _REVERT_S):
                return
            await self.call.sleep(0.5)

    async def _finish(self, note: Note) -> None:
        node = await self._get_node()
        paused = {} if mig_state(node) in ("pending", "rebooting") else resumed(node)
        body: dict[str, Any] = {"metadata": {"annotations": {NOTE: None}, "labels": paused}}
        if note.cordoned:
            body["spec"] = {"unschedulable": None}
        await self.cluster.patch(self.name, body)

    async def _get_node(self) -> Manifest:
        node = await self.cluster.node(self.name)
        if node is None:
            raise OperationError(f"node {self.name}: it is gone; run again for the remaining nodes")
        return node


def _has_same_target(previous: Note | None, note: Note) -> bool:
    """Whether the killed run that left ``previous`` had this target: then its failure counts for this run."""
    return previous is not None and previous.target == note.target


def _is_ready(node: Manifest) -> bool:
    return bool(condition(node, "Ready").get("status") == "True")


def _is_transient(error: OperationError) -> bool:
    """Whether the error can come from an API server that is starting."""
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.code >= 500)
