"""Lifts the startup taint of GPU nodes that keep their pool's promise; runs in a pod.

    readiness_gate.py [--every SECONDS] [--account FOLDER] POOLS

POOLS is a JSON file: by the name of a pool, the ``labels`` that discovery sets on its nodes, the ``operands``
that need a ready pod (by its label ``app``) on each node, and what each node ``offers``. A node's annotation
``gpuform.io/offers`` takes precedence, or ``gpuform.io/offers-per-gpu`` if nodes of a pool differ in their
number of GPUs. Extended resources are read from the node's allocatable, device classes from its
ResourceSlices. With ``trial`` (namespace, image, runtime_class) a pod must then have opened a GPU of the
node. Until all is there the taint stays, whatever else happens (no answer from the API server, a failing
operand, an unreadable promise), and an annotation says what is missing. Only our taint is removed, in one
patch that the server refuses if the taints have changed meanwhile.

``proof.py`` says what a node must prove, ``trial.py`` makes the pod. Otherwise standard library only, Python
3.11 or newer.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
from pathlib import Path
from types import ModuleType
from typing import Any

if "infra" not in sys.modules:  # in a pod, where the files are in one folder
    for package in ("infra", "infra.incluster"):
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [str(Path(__file__).parent)]
from infra.incluster import cluster, proof, trial

SLICES = "/apis/resource.k8s.io/v1/resourceslices"

Json = dict[str, Any]


def check_nodes(api: cluster.Cluster, pools: Json, log: cluster.Log) -> None:
    """Check every node of our pools with the startup taint once."""
    names = {""}
    for node in api.nodes(proof.POOL):
        if not proof.startup_taints(node):
            continue
        name = node["metadata"]["name"]
        names.add(name)
        try:
            reasons = check_node(api, node, pools.get(node["metadata"]["labels"][proof.POOL]))
            text = f"waits: {reasons}" if reasons else "is ready, its taint is lifted"
        except cluster.ERRORS as error:
            text = f"waits: {cluster.describe_error(error)}"
        log.log_change(name, f"{name} {text}")
    log.keep(names)


def check_node(api: cluster.Cluster, node: Json, pool: Json | None) -> str:
    """Lift the node's taint, or annotate what it waits for; returns that text, empty if lifted."""
    name, annotations = node["metadata"]["name"], node["metadata"].get("annotations") or {}
    pods = api.on_node(_pods(api.namespace), name)  # the operator's namespace, which is also ours
    devices = proof.count_devices(api.on_node(SLICES, name)) if proof.promises_claims(node, pool) else {}
    now = time.time()
    reasons = proof.unmet_conditions(node, pods, pool, devices)
    if pool is not None and "trial" in pool:
        reasons += try_gpu(api, node, pool, bool(reasons), now)
    text = "; ".join(reasons)[: cluster.MAX_MESSAGE]
    if pool is not None and not reasons:
        evidence = proof.evidence(node, pods, pool, cluster.format_time(now))
        api.patch_node(node, proof.lift_patch(node, evidence))
    elif annotations.get(proof.WAITS_FOR) != text:
        api.patch_node(node, {"metadata": {"annotations": {proof.WAITS_FOR: text}}})
    return text


def try_gpu(api: cluster.Cluster, node: Json, pool: Json, incomplete: bool, now: float) -> list[str]:
    """Let a pod open a GPU of the node, and say what it waits for.

    ``incomplete``: the node lacks something else. The pod is deleted before the node is admitted, and
    whenever the node lacks something again.
    """
    path = _pods(pool["trial"]["namespace"])
    pods = api.on_node(path, node["metadata"]["name"])
    pod = next((item for item in pods if item["metadata"]["name"] == trial.pod_name(node)), None)
    cordoned = bool(node["spec"].get("unschedulable"))  # its GPUs may be partitioned at this moment
    requested = trial.choose_resource(proof.promised_resources(node, pool), proof.RESOURCE, now)
    if incomplete or cordoned or requested is None:
        if pod is not None and "deletionTimestamp" not in pod["metadata"]:
            api.delete(path, pod)
        return ["it is cordoned, so no pod can try its GPUs"] if cordoned else []
    if pod is None:
        try:
            api.request("POST", path, {}, trial.render_pod(node, requested, pool["trial"]))
        except urllib.error.HTTPError as error:  # an admission plugin, for example for its RuntimeClass
            return [f"a pod that requests {requested} is refused: {json.load(error)['message']}"]
        return [trial.start_message(requested)]
    if "deletionTimestamp" in pod["metadata"]:
        return ["the last pod that tried a GPU is ending"]
    done = pod.get("status", {}).get("phase") == "Succeeded"  # it had a GPU
    if done or trial.is_expired(pod, now):
        api.delete(path, pod)
    return [] if done else [trial.describe_state(pod)]


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def main() -> None:
    """Check the nodes until SIGTERM."""
    args = cluster.parse_arguments(5.0)
    api, log = cluster.Cluster(args.account), cluster.Log()
    while True:
        try:
            check_nodes(api, args.settings, log)
            log.log_change("", "")
        except cluster.ERRORS as error:
            log.log_change("", f"the API server: {cluster.describe_error(error)}")
        time.sleep(args.every)


if __name__ == "__main__":
    main()
