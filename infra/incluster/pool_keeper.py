"""Gives nodes that join their pool's labels, taints and MIG layout; runs in a pod.

    pool_keeper.py [--every SECONDS] [--account FOLDER] POOLS

POOLS is a JSON file: by the name of a pool, the ``selector`` that its nodes are created with, the ``labels``
and ``taints`` that they must have, the ``startup`` taints of nodes without proof, and the ``layout`` of GPUs
that are partitioned after the node has joined. It watches the nodes without the environment label, so it
works only when a node joins; every ``--every`` seconds they are listed again. A node with the label is in its
pool and left alone: `gpuform up` applies changes of pools. So this program never removes anything, nor
overwrites an existing value. A node older than the pool's ``joined_within`` seconds is left alone, too: it
may be in use, and `gpuform up` checks that.

Nodes of pools without a ``manager`` join with everything but their layout. Of these, the program watches
those that have another layout or none. NVIDIA's operator sets ``all-disabled`` on a node without a layout, so
that value counts as none. A node that the readiness gate has proven gets no layout: pods may use its GPUs.

Taints are set first, in the same patch as the layout if the node has none; the labels last, which marks the
node as done. Another value that another program has set stays and is reported as an event. Standard library
only, Python 3.11 or newer.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

if "infra" not in sys.modules:  # in a pod, where the files are in one folder
    for package in ("infra", "infra.incluster"):
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [str(Path(__file__).parent)]
from infra.incluster import cluster

NAME = "pool-keeper"
ENVIRONMENT = "gpuform.io/environment"  # marks complete nodes; Magnum may set the pool label itself
RELAYOUT = "gpuform.io/relayout"
LAYOUT = "gpuform.io/mig-layout"
POOL = "gpuform.io/pool"
MIG_CONFIG = "nvidia.com/mig.config"
GKES_TAINT = ("nvidia.com/gpu", "present")
MIG_DEFAULT = "all-disabled"
PAUSE_S = 1.0  # after a watch that ended at once

Json = dict[str, Any]


@dataclass(frozen=True)
class NodeChanges:
    """What a node gets; ``taints`` is the complete list, ``conflicts`` names what keeps another value."""

    labels: dict[str, str]
    taints: list[Json]
    layout: dict[str, str]
    annotations: dict[str, str | None]
    conflicts: tuple[str, ...]


def pool_of(node: Json, pools: Json) -> str | None:
    """The pool with a selector that the node matches; None without one, and for nodes to leave alone."""
    meta = node["metadata"]
    labels = meta.get("labels") or {}
    if "deletionTimestamp" in meta or RELAYOUT in (meta.get("annotations") or {}):
        return None
    for name, pool in sorted(pools.items()):
        if pool["selector"].items() <= labels.items():
            return str(name) if _is_candidate(node, pool) else None
    return None


def _is_candidate(node: Json, pool: Json) -> bool:
    meta = node["metadata"]
    if "manager" in pool and ENVIRONMENT in (meta.get("labels") or {}):
        return False
    if "joined_within" not in pool:
        return True
    return time.time() - cluster.parse_time(meta["creationTimestamp"]) <= float(pool["joined_within"])


def node_selector(pools: Json) -> str:
    """Label selector of the nodes that may lack something."""
    configs = {name: pool["layout"]["config"] for name, pool in pools.items() if "manager" not in pool}
    if not configs:
        return f"!{ENVIRONMENT}"
    names = ",".join(sorted(set(configs.values())))
    return f"{POOL} in ({','.join(sorted(configs))}),{MIG_CONFIG} notin ({names})"


def missing_values(node: Json, pool: Json) -> NodeChanges:
    """What a node of the pool lacks."""
    meta = node["metadata"]
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    existing = {(taint["key"], taint["effect"]): taint.get("value", "") for taint in _taints(node)}
    conflicts, taints, new_labels = [], _taints(node), dict[str, str]()
    startup = pool.get("startup") or {}
    is_proven = startup.get("proof") in annotations
    required = pool["taints"] + ([] if is_proven else startup.get("taints", []))
    for taint in required:
        key, effect, value = taint["key"], taint["effect"], taint.get("value", "")
        if (key, effect) not in existing:
            taints = [*taints, taint]
        elif existing[key, effect] != value and (key, existing[key, effect]) != GKES_TAINT:
            conflicts.append(f"the taint {key}={existing[key, effect]}:{effect}, and not {value!r}")
    for key, value in pool["labels"].items():
        if labels.get(key, value) == value:
            new_labels[key] = value
        else:
            conflicts.append(f"the label {key}={labels[key]}, and not {value!r}")
    layout, config = pool.get("layout"), labels.get(MIG_CONFIG)
    if not layout or is_proven or config not in (None, MIG_DEFAULT) or config == layout["config"]:
        return NodeChanges(new_labels, taints, {}, {}, tuple(conflicts))
    notes: dict[str, str | None] = {LAYOUT: layout["content"]} if layout.get("content") else {}
    return NodeChanges(new_labels, taints, {MIG_CONFIG: layout["config"]}, notes, tuple(conflicts))


def _taints(node: Json) -> list[Json]:
    return list(node["spec"].get("taints") or ())


class Keeper:
    """Handles nodes that join; remembers only what it has logged and which nodes are done."""

    def __init__(self, server: cluster.Cluster, pools: Json) -> None:
        self._cluster, self._pools = server, pools
        self._done: set[str] = set()
        self._log = cluster.Log()

    def watch(self, seconds: float) -> None:
        """Handle every existing node, and each that joins within ``seconds``."""
        self._done.clear()
        start = time.monotonic()
        try:
            for node in self._cluster.watch(node_selector(self._pools), seconds):
                self._handle(node)
            self._log.log_change("", "")
        except cluster.ERRORS as error:
            self._log.log_change("", f"the API server: {cluster.describe_error(error)}")
        if time.monotonic() - start < PAUSE_S:
            time.sleep(PAUSE_S)

    def _handle(self, node: Json) -> None:
        """A conflict is not logged: the watch delivers the node's next version."""
        name, pool_name = node["metadata"]["name"], pool_of(node, self._pools)
        if pool_name is None or node["metadata"]["uid"] in self._done:
            return
        pool = self._pools[pool_name]
        changes = missing_values(node, pool)
        if "manager" not in pool and not changes.layout:  # `gpuform up` changes its layout
            return
        try:
            if changes.layout or changes.taints != _taints(node):
                self._cluster.change_node(node, changes.annotations, changes.taints, changes.layout)
            if "manager" in pool:
                self._apply_labels(node, changes.labels, pool["manager"])
        except cluster.ERRORS as error:
            if not cluster.has_status(error, cluster.NOT_FOUND, cluster.CONFLICT):
                text = cluster.describe_error(error)
                self._log.log_change(name, f"{name}: not in its pool {pool_name} yet: {text}")
            return
        self._done.add(node["metadata"]["uid"])
        self._log.last_texts.pop(name, None)
        suffix = f", its layout {changes.layout[MIG_CONFIG]}" if changes.layout else ""
        print(f"{name} is in pool {pool_name}{suffix}", flush=True)
        if changes.conflicts:
            message = f"not changed: {'; '.join(changes.conflicts)}, as its pool {pool_name} requires"
            print(f"{name} {message}", flush=True)
            try:  # an event that cannot be written does not undo the change
                involved = cluster.node_reference(node)
                kind, reason = "Warning", "PoolValueOfOthers"
                self._cluster.create_event(NAME, kind, reason, involved, message, time.time())
            except cluster.ERRORS as error:
                print(f"{name}: event not written: {cluster.describe_error(error)}", flush=True)

    def _apply_labels(self, node: Json, labels: dict[str, str], manager: str) -> None:
        """Set all labels that ``manager`` owns on this node, by server-side apply; those of others stay.

        Refused with ``CONFLICT`` if another manager has set another value, or the node's uid has changed.
        """
        metadata = {"name": node["metadata"]["name"], "uid": node["metadata"]["uid"], "labels": labels}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        kind = "apply-patch+yaml"  # apply takes JSON only if it is called YAML
        path = f"/api/v1/nodes/{metadata['name']}"
        self._cluster.request("PATCH", path, {"fieldManager": manager}, body, kind)


def main() -> None:
    """Watch until SIGTERM."""
    args = cluster.parse_arguments(30.0)
    keeper = Keeper(cluster.Cluster(args.account), args.settings)
    while True:
        keeper.watch(args.every)


if __name__ == "__main__":
    main()
