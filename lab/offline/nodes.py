"""Simulated nodes of a cloud stack on the embedded control plane: created, changed and deleted."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.engine.places import Tools
from infra.model import labels
from infra.model.environment import Environment
from infra.plan import magnum, played_groups, played_nodes

KINDS = ("aws", "openstack")
"""Kinds of cluster with nodes that a cloud creates, and that are simulated here."""
_TIMEOUT_S = 120
_STRICT = (labels.SIM_CONTAINER_RUNTIME, labels.SIM_GPU_RESET)
"""Annotations that nodes of earlier versions did not have; without them nodes accept every setting."""


def play(
    env: Environment, paths: Paths, tools: Tools, waiting: bool = False, lenient: bool = False
) -> Mapping[str, int]:
    """Make the cluster's nodes match the environment; returns the number of nodes by pool.

    ``waiting`` nodes have not passed the readiness gate yet. On ``lenient`` ones MIG mode changes without a
    reboot, and containerd gives GPUs with any settings: an earlier version's suffice. Idempotent: changes
    nodes that differ, and deletes surplus nodes without draining them. Raises InputError for a cluster of
    another kind, Failure if the control plane does not answer.
    """
    if env.cluster.kind not in KINDS:
        fact = f"{env.cluster.kind} has no nodes to simulate"
        raise InputError("cluster.kind", fact, f"name a stack with cluster.kind: {' or '.join(KINDS)}")
    wanted, mine, group = _wanted(env, waiting)
    for one in wanted if lenient else ():
        for annotation in _STRICT:
            one["metadata"]["annotations"].pop(annotation, None)
    names = {one["metadata"]["name"] for one in wanted}
    _kubectl(paths, tools, "apply", "-f", "-", input=json.dumps({**_LIST, "items": list(wanted)}))
    there = json.loads(_kubectl(paths, tools, "get", "nodes", "-l", mine, "-o", "json"))["items"]
    gone = sorted({one["metadata"]["name"] for one in there} - names)
    if gone:
        _kubectl(paths, tools, "delete", "nodes", *gone)
    found: dict[str, int] = {}
    for one in wanted:
        pool = one["metadata"]["labels"][group]
        found[pool] = found.get(pool, 0) + 1
    return found


def _wanted(env: Environment, waiting: bool) -> tuple[tuple[played_nodes.Manifest, ...], str, str]:
    """Nodes, their selector, and the label that holds the name of their pool or group."""
    if env.cluster.kind == "aws":
        return played_nodes.manifests(env, waiting), f"{labels.ENVIRONMENT}={env.name}", labels.POOL
    group = magnum.GROUP_LABELS[magnum.cluster_of(env).driver]
    return played_groups.manifests(env, proven=not waiting), group, group


_LIST = {"apiVersion": "v1", "kind": "List"}


def _kubectl(paths: Paths, tools: Tools, *words: str, input: str | None = None) -> str:
    command = [str(tools.path("kubectl")), "--kubeconfig", str(paths.kubeconfig), *words]
    if not paths.kubeconfig.is_file():
        raise _unreachable("it was never started")
    try:
        done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise _unreachable(f"no answer in {_TIMEOUT_S} s") from None
    if done.returncode:
        raise _unreachable(done.stderr.strip())
    return done.stdout


def _unreachable(reason: str) -> Failure:
    return Failure("embedded control plane", reason, "start it with `gpuform local start`")
