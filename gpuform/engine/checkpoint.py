"""State files of local runs: repairs after a killed run, before the engine reads them, and their removal.

Every repair relies on the behaviour of this project's own plugins.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import MAIN_STACK, Paths
from gpuform.engine import former_nodes
from gpuform.engine.files import EngineFiles, write
from gpuform.engine.locks import release_dead
from gpuform.engine.pending import CREATING, MAGNUM, RELEASE, UPDATING
from infra.model.base.guard_names import GUARD

# Type prefixes of providers that resume a killed create of the same resource. A pending create of any other
# provider stays in the state, and the engine warns of it.
RESUMED_TYPES = ("gpuform:",)
_PROVIDERS = "pulumi:providers:"
_OFFLINE_TYPES = ("aws:", "openstack:")  # in offline runs, which create nothing, so any create can be resumed


def repair(checkpoint: Path, stack: str, offline: bool = False) -> list[str]:
    """Restore a damaged checkpoint from its backup, forget creates that will be resumed, and combine nodes.

    Returns one line per repair. Raises Failure if the checkpoint is damaged and has no intact backup.
    """
    if not checkpoint.exists():
        return []
    # Left by a run with a backend address that did not come from backend.address.
    checkpoint.with_name(checkpoint.name + ".attrs").unlink(missing_ok=True)
    repairs = []
    content = _read(checkpoint)
    if content is None:
        content = _restore(checkpoint, stack)
        repairs.append(f"the state of stack {stack} was damaged; restored the engine's backup")
    forgotten = _forget_pending(content, (*RESUMED_TYPES, *_OFFLINE_TYPES) if offline else RESUMED_TYPES)
    if forgotten:
        repairs.append(f"{forgotten} operation(s) of an interrupted run will be resumed")
    if count := former_nodes.combine(content["checkpoint"].get("latest") or {}):
        repairs.append(f"{count} simulated nodes have one resource per pool now; no node was changed")
    if repairs:
        write(checkpoint, json.dumps(content), 0o600)
    return repairs


def read_deployment(checkpoint: Path) -> dict[str, Any]:
    """The state as `pulumi stack export` prints it; empty if the checkpoint is missing or damaged."""
    content = _read(checkpoint) or {"checkpoint": {}}
    return {"deployment": content["checkpoint"].get("latest") or {}}


def _restore(checkpoint: Path, stack: str) -> dict[str, Any]:
    backup = _read(checkpoint.with_name(checkpoint.name + ".bak"))
    if backup is None:
        raise Failure(
            f"stack {stack}",
            f"its state is damaged and has no intact backup ({checkpoint})",
            "run `gpuform local stop --delete` and start again; this deletes the embedded cluster, too",
        )
    return backup


def guard_records(state: Mapping[str, Any]) -> dict[str, Any]:
    """What the guards of a state have recorded, as one mapping; empty without guards."""
    records: dict[str, Any] = {}
    for resource in (state.get("deployment") or {}).get("resources") or ():
        if resource["type"] == GUARD:
            records |= resource.get("inputs") or {}
    return records


def _forget_pending(content: dict[str, Any], resumed: tuple[str, ...]) -> int:
    """Drop pending operations that are resumed; a resource being updated or deleted stays in the state."""
    latest = content["checkpoint"].get("latest") or {}
    pending = latest.get("pending_operations") or []
    remaining = [one for one in pending if not _is_resumed(one, resumed) or _is_settled(one, resumed)]
    if len(remaining) < len(pending):
        latest["pending_operations"] = remaining
    return len(pending) - len(remaining)


def _is_settled(operation: dict[str, Any], resumed: tuple[str, ...]) -> bool:
    """Whether `gpuform.stack.recover.resume` settles the operation.

    Until then Helm refuses the next step, and Magnum would get a second resize during the first. Helm resumes
    an interrupted uninstall itself.
    """
    kind = str(operation["resource"]["type"])
    is_waited_for = kind == RELEASE or (kind.startswith(MAGNUM) and not kind.startswith(resumed))
    return is_waited_for and operation["type"] in (CREATING, UPDATING)


def _is_resumed(operation: dict[str, Any], resumed: tuple[str, ...]) -> bool:
    kind = str(operation.get("resource", {}).get("type", ""))
    return kind.startswith(resumed) or operation.get("type") != CREATING


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_valid = isinstance(content, dict) and isinstance(content.get("checkpoint"), dict)
    return content if is_valid else None


def forget_stacks(paths: Paths) -> None:
    """Remove the state of every stack, our PULUMI_HOME, wrapper and links; the stacks' resources stay.

    Raises Failure, and removes nothing, while a run holds one of the stacks, and as ``require_forgettable``.
    """
    require_forgettable(paths)
    files = EngineFiles(paths)
    for backend in (files.backend, EngineFiles(paths, offline=True).backend):
        for folder in backend.glob(".pulumi/locks/*/*/*"):
            release_dead(folder, folder.name)
    shutil.rmtree(files.folder, ignore_errors=True)
    shutil.rmtree(paths.shims, ignore_errors=True)


def require_forgettable(paths: Paths) -> None:
    """Raise Failure while a stack has resources outside the embedded cluster: only its state records them."""
    for file in sorted(EngineFiles(paths).backend.glob(".pulumi/stacks/*/*.json")):
        resources = read_deployment(file)["deployment"].get("resources") or ()
        if has_outside(resources, replace(paths, stack=file.stem)):
            raise Failure(
                f"stack {file.stem}",
                f"has {len(resources)} resources outside the embedded cluster, recorded only in this state",
                f"run 'gpuform destroy {file.stem}' first, or, if they are gone, remove {file}",
            )


def has_outside(resources: Iterable[Mapping[str, Any]], paths: Paths) -> bool:
    """Whether some lie outside the stack's embedded control plane, or the one that all stacks shared once."""
    embedded = str(paths.kubeconfig), str(replace(paths, stack=MAIN_STACK).kubeconfig)
    return any(_is_outside(resource, embedded) for resource in resources)


def _is_outside(resource: Mapping[str, Any], embedded: Collection[str]) -> bool:
    kind = str(resource["type"])
    if kind == f"{_PROVIDERS}kubernetes":
        return (resource.get("inputs") or {}).get("kubeconfig") not in embedded
    return kind.startswith(_PROVIDERS) and kind != f"{_PROVIDERS}gpuform"
