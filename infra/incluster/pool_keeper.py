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
OURS = "gpuform.io/environment"  # marks complete nodes; Magnum may set the pool label itself
RELAYOUT = "gpuform.io/relayout"
LAYOUT = "gpuform.io/mig-layout"
POOL = "gpuform.io/pool"
MIG_CONFIG = "nvidia.com/mig.config"
MIG_DEFAULT = "all-disabled"
PAUSE_S = 1.0  # after a watch that ended at once

Json = dict[str, Any]


@dataclass(frozen=True)
class Gift:
    """What a node gets; ``taints`` is the complete list, ``left`` names what keeps another value."""

    labels: dict[str, str]
    taints: list[Json]
    layout: dict[str, str]
    notes: dict[str, str | None]
    left: tuple[str, ...]


def pool_of(node: Json, pools: Json) -> str | None:
    """The pool with a selector that the node matches; None without one, and for nodes to leave alone."""
    meta = node["metadata"]
    labels = meta.get("labels") or {}
    if "deletionTimestamp" in meta or RELAYOUT in (meta.get("annotations") or {}):
        return None
    for name, pool in sorted(pools.items()):
        if pool["selector"].items() <= labels.items():
            return str(name) if _may_lack(node, pool) else None
    return None


def _may_lack(node: Json, pool: Json) -> bool:
    meta = node["metadata"]
    if "manager" in pool and OURS in (meta.get("labels") or {}):
        return False
    if "joined_within" not in pool:
        return True
    return time.time() - cluster.seconds(meta["creationTimestamp"]) <= float(pool["joined_within"])


def watched(pools: Json) -> str:
    """Label selector of the nodes that may lack something."""
    born = {name: pool["layout"]["config"] for name, pool in pools.items() if "manager" not in pool}
    if not born:
        return f"!{OURS}"
    configs = ",".join(sorted(set(born.values())))
    return f"{POOL} in ({','.join(sorted(born))}),{MIG_CONFIG} notin ({configs})"


def gift(node: Json, pool: Json) -> Gift:
    """What a node of the pool lacks."""
    meta = node["metadata"]
    labels, noted = meta.get("labels") or {}, meta.get("annotations") or {}
    there = {(one["key"], one["effect"]): one.get("value", "") for one in _taints(node)}
    left, taints, own = [], _taints(node), dict[str, str]()
    startup = pool.get("startup") or {}
    owed = pool["taints"] + ([] if startup.get("proof") in noted else startup.get("taints", []))
    for one in owed:
        key, effect, value = one["key"], one["effect"], one.get("value", "")
        if (key, effect) not in there:
            taints = [*taints, one]
        elif there[key, effect] != value:
            left.append(f"the taint {key}={there[key, effect]}:{effect}, and not {value!r}")
    for key, value in pool["labels"].items():
        if labels.get(key, value) == value:
            own[key] = value
        else:
            left.append(f"the label {key}={labels[key]}, and not {value!r}")
    layout, told, proven = pool.get("layout"), labels.get(MIG_CONFIG), startup.get("proof") in noted
    if not layout or proven or told not in (None, MIG_DEFAULT) or told == layout["config"]:
        return Gift(own, taints, {}, {}, tuple(left))
    notes: dict[str, str | None] = {LAYOUT: layout["content"]} if layout.get("content") else {}
    return Gift(own, taints, {MIG_CONFIG: layout["config"]}, notes, tuple(left))


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
        began = time.monotonic()
        try:
            for node in self._cluster.watch(watched(self._pools), seconds):
                self._see(node)
            self._log.once("", "")
        except cluster.TROUBLE as error:
            self._log.once("", f"the API server: {cluster.words(error)}")
        if time.monotonic() - began < PAUSE_S:
            time.sleep(PAUSE_S)

    def _see(self, node: Json) -> None:
        """A conflict is not logged: the watch delivers the node's next version."""
        name, own = node["metadata"]["name"], pool_of(node, self._pools)
        if own is None or node["metadata"]["uid"] in self._done:
            return
        pool = self._pools[own]
        found = gift(node, pool)
        if "manager" not in pool and not found.layout:  # `gpuform up` changes its layout
            return
        try:
            if found.layout or found.taints != _taints(node):
                self._cluster.change(node, found.notes, found.taints, found.layout)
            if "manager" in pool:
                self._own_labels(node, found.labels, pool["manager"])
        except cluster.TROUBLE as error:
            if not cluster.refused(error, cluster.NOT_FOUND, cluster.CONFLICT):
                self._log.once(name, f"{name}: not in its pool {own} yet: {cluster.words(error)}")
            return
        self._done.add(node["metadata"]["uid"])
        self._log.said.pop(name, None)
        besides = f", its layout {found.layout[MIG_CONFIG]}" if found.layout else ""
        print(f"{name} is in pool {own}{besides}", flush=True)
        if found.left:
            why = f"not changed: {'; '.join(found.left)}, as its pool {own} requires"
            print(f"{name} {why}", flush=True)
            try:  # an event that cannot be written does not undo the change
                about = cluster.about_node(node)
                self._cluster.event(NAME, "Warning", "PoolValueOfOthers", about, why, time.time())
            except cluster.TROUBLE as error:
                print(f"{name}: event not written: {cluster.words(error)}", flush=True)

    def _own_labels(self, node: Json, labels: dict[str, str], manager: str) -> None:
        """Set all labels that ``manager`` owns on this node, by server-side apply; those of others stay.

        Refused with ``CONFLICT`` if another manager has set another value, or the node's uid has changed.
        """
        own = {"name": node["metadata"]["name"], "uid": node["metadata"]["uid"], "labels": labels}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": own}
        kind = "apply-patch+yaml"  # apply takes JSON only if it is called YAML
        self._cluster.call("PATCH", f"/api/v1/nodes/{own['name']}", {"fieldManager": manager}, body, kind)


def main() -> None:
    """Watch until SIGTERM."""
    args = cluster.arguments(30.0)
    keeper = Keeper(cluster.Cluster(args.account), args.settings)
    while True:
        keeper.watch(args.every)


if __name__ == "__main__":
    main()
