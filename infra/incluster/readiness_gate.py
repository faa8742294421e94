"""Lifts the startup taint of GPU nodes that keep their pool's promise; runs in a pod.

    readiness_gate.py [--every SECONDS] [--account FOLDER] OPERAND...

A node is let in when it offers what its annotation ``gpuform.io/offers`` promises, and a pod of each OPERAND
(its label ``app``) is ready on it. Where nodes of a pool differ in how many GPUs they have, the annotation is
``gpuform.io/offers-per-gpu``. Until then the taint stays, whatever else happens: no answer from the API
server, an operand that fails, a promise that nobody can read. Only our taint is taken away, in one patch that
the server refuses if the taints have changed meanwhile. Standard library alone, Python 3.11 or newer.
"""

from __future__ import annotations

import argparse
import datetime
import http.client
import json
import os
import signal
import ssl
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TAINT = "gpuform.io/gpu-not-ready"
POOL = "gpuform.io/pool"
OFFERS = "gpuform.io/offers"
PER_GPU = "gpuform.io/offers-per-gpu"
GPUS = "karpenter.k8s.aws/instance-gpu-count"
READY = "gpuform.io/gpu-ready"
MIG_CONFIG = "nvidia.com/mig.config"
MIG_STATE = "nvidia.com/mig.config.state"
DRIVER = "nvidia.com/cuda.driver-version.full"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE = 100  # nodes in one answer, so that a large cluster needs no large pod
TIMEOUT_S = 10.0

Json = dict[str, Any]
TROUBLE = (OSError, http.client.HTTPException, ValueError, KeyError)


class Api:
    """The API server, as the pod's service account may use it. Raises OSError where it refuses or is away."""

    def __init__(self, account: Path) -> None:
        """``account`` is the folder with the token, the certificate authority and our namespace."""
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        self._server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._account = account
        self._namespace = (account / "namespace").read_text().strip()
        self._tls = ssl.create_default_context(cafile=str(account / "ca.crt"))

    def waiting(self) -> Iterator[Json]:
        """Nodes of our pools that have the taint."""
        query = {"labelSelector": POOL, "limit": str(PAGE)}
        while True:
            page = self._call("/api/v1/nodes", query)
            yield from (node for node in page["items"] if taints(node))
            token = page["metadata"].get("continue")
            if not token:
                return
            query = {**query, "continue": token}

    def pods(self, node: str) -> list[Json]:
        """Pods of the operator's namespace, which is ours, on one node."""
        found: list[Json] = self._call(
            f"/api/v1/namespaces/{self._namespace}/pods", {"fieldSelector": f"spec.nodeName={node}"}
        )["items"]
        return found

    def patch(self, node: str, operations: list[Json]) -> None:
        """All of the operations, or none."""
        self._call(f"/api/v1/nodes/{node}", {}, operations)

    def _call(self, path: str, query: dict[str, str], operations: list[Json] | None = None) -> Json:
        url = f"{self._server}{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 (always https)
        request.add_header("Authorization", f"Bearer {(self._account / 'token').read_text().strip()}")
        if operations is not None:
            request.method = "PATCH"
            request.data = json.dumps(operations).encode()
            request.add_header("Content-Type", "application/json-patch+json")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as answer:  # noqa: S310
            found: Json = json.load(answer)
        return found


def taints(node: Json) -> list[tuple[int, Json]]:
    """Our taints on the node and their places among all of them, the last first."""
    every = list(enumerate(node["spec"].get("taints") or ()))
    return [(place, taint) for place, taint in reversed(every) if taint["key"] == TAINT]


def amount(quantity: str) -> int:
    """An extended resource's quantity; the API server writes whole thousands as 1k."""
    return int(quantity[:-1]) * 1000 if quantity.endswith("k") else int(quantity)


def promise(node: Json) -> dict[str, int]:
    """What the node shall offer; nothing where nobody can read it, or see how many GPUs the node has."""
    meta = node["metadata"]
    try:
        if PER_GPU not in meta["annotations"]:
            each, gpus = meta["annotations"][OFFERS], 1
        else:
            each, gpus = meta["annotations"][PER_GPU], int(meta["labels"][GPUS])
        return {name: int(count) * gpus for name, count in json.loads(each).items()} if gpus > 0 else {}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def missing(node: Json, pods: list[Json], operands: list[str]) -> list[str]:
    """What keeps the node from being used, in words; nothing for a node that is as its pool promises."""
    meta, allocatable = node["metadata"], node.get("status", {}).get("allocatable") or {}
    promised = promise(node)
    if not promised:
        each = PER_GPU in (meta.get("annotations") or {})
        read = f"{PER_GPU} with label {GPUS}" if each else OFFERS
        return [f"annotation {read} does not say what its pool promises"]
    found = []
    for name, count in promised.items():
        there = amount(allocatable.get(name, "0"))
        if there < count:
            found.append(f"it offers {there} of {count} {name}")
    labels = meta.get("labels") or {}
    if MIG_CONFIG in labels and labels.get(MIG_STATE) != "success":
        found.append(f"MIG layout {labels[MIG_CONFIG]} is {labels.get(MIG_STATE) or 'not begun'}")
    for operand in operands:
        own = counting(operand, node, pods)
        if not own:
            found.append(f"{operand} has no pod")
        found += [f"{pod['metadata']['name']} is not ready" for pod in own if not ready(pod)]
    return found


def counting(operand: str, node: Json, pods: list[Json]) -> list[Json]:
    """The operand's pods; one older than the node ran on an earlier one of its name, and proves nothing."""
    since = node["metadata"]["creationTimestamp"]
    own = [pod for pod in pods if pod["metadata"].get("labels", {}).get("app") == operand]
    return [pod for pod in own if pod["metadata"]["creationTimestamp"] >= since]


def ready(pod: Json) -> bool:
    """Whether the pod has done its work, or is doing it."""
    status = pod.get("status", {})
    if "deletionTimestamp" in pod["metadata"]:
        return False
    if status.get("phase") == "Succeeded":
        return True
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    return status.get("phase") == "Running" and conditions.get("Ready") == "True"


def evidence(node: Json, pods: list[Json], operands: list[str], now: datetime.datetime) -> str:
    """What was found, and when: the value of the node's annotation."""
    known = {
        "at": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "driver": node["metadata"].get("labels", {}).get(DRIVER, "unknown"),
        "kubelet": node["status"]["nodeInfo"]["kubeletVersion"],
        "offers": promise(node),
        "operands": {operand: image(counting(operand, node, pods)[0]) for operand in operands},
    }
    return json.dumps(known, sort_keys=True)


def image(pod: Json) -> str:
    """Name and version of what the pod runs, without the registry."""
    return str(pod["spec"]["containers"][0]["image"]).rpartition("/")[2]


def lifting(node: Json, found: str) -> list[Json]:
    """The patch: each of our taints goes if it is still where it was, and the evidence is written."""
    operations: list[Json] = []
    for place, taint in taints(node):
        path = f"/spec/taints/{place}"
        operations += [{"op": "test", "path": path, "value": taint}, {"op": "remove", "path": path}]
    key = READY.replace("~", "~0").replace("/", "~1")
    return [*operations, {"op": "add", "path": f"/metadata/annotations/{key}", "value": found}]


def look(api: Api, operands: list[str], said: dict[str, str]) -> None:
    """One look at every waiting node; ``said`` is what was last said of each, so that nothing is repeated."""
    names = set()
    for node in api.waiting():
        name = node["metadata"]["name"]
        names.add(name)
        try:
            pods = api.pods(name)
            reasons = missing(node, pods, operands)
            if not reasons:
                now = datetime.datetime.now(datetime.UTC)
                api.patch(name, lifting(node, evidence(node, pods, operands, now)))
            text = f"waits: {'; '.join(reasons)}" if reasons else "is ready, its taint is lifted"
        except TROUBLE as error:
            text = f"waits: {type(error).__name__}: {error}"
        if said.get(name) != text:
            print(f"{name} {text}", flush=True)
            said[name] = text
    for gone in set(said) - names:
        del said[gone]


def main() -> None:
    """Look again and again, until the pod is told to end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("operands", nargs="+")
    parser.add_argument("--every", type=float, default=5.0)
    parser.add_argument("--account", type=Path, default=ACCOUNT)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the first process of a container has no default
    api, said, trouble = Api(args.account), dict[str, str](), ""
    while True:
        try:
            look(api, args.operands, said)
            trouble = ""
        except TROUBLE as error:
            text = f"{type(error).__name__}: {error}"
            if text != trouble:
                print(f"the API server: {text}", flush=True)
            trouble = text
        time.sleep(args.every)


if __name__ == "__main__":
    main()
