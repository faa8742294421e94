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

import argparse
import datetime
import http.client
import json
import os
import signal
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # python3 -I does not search this folder
import proof  # type: ignore[import-not-found,unused-ignore]
import trial  # type: ignore[import-not-found,unused-ignore]

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE = 100  # nodes in one answer; bounds the pod's memory in a large cluster
LONGEST = 1000  # characters of a reason on the node
TIMEOUT_S = 10.0

Json = dict[str, Any]
TROUBLE = (OSError, http.client.HTTPException, ValueError, KeyError)


class Api:
    """The API server, with the pod's service account. Raises OSError if it refuses or is unreachable."""

    def __init__(self, account: Path) -> None:
        """``account`` is the folder with the token, the CA and our namespace."""
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        self._server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._account = account
        self._namespace = (account / "namespace").read_text().strip()
        self._tls = ssl.create_default_context(cafile=str(account / "ca.crt"))

    def waiting(self) -> Iterator[Json]:
        """Nodes of our pools with the startup taint."""
        query = {"labelSelector": proof.POOL, "limit": str(PAGE)}
        while True:
            page = self._call("/api/v1/nodes", query)
            yield from (node for node in page["items"] if proof.taints(node))
            token = page["metadata"].get("continue")
            if not token:
                return
            query = {**query, "continue": token}

    def pods(self, node: str, namespace: str = "") -> list[Json]:
        """Pods on one node, by default in the operator's namespace, which is also ours."""
        path = f"/api/v1/namespaces/{namespace or self._namespace}/pods"
        found: list[Json] = self._call(path, {"fieldSelector": f"spec.nodeName={node}"})["items"]
        return found

    def create(self, pod: Json, namespace: str) -> None:
        self._call(f"/api/v1/namespaces/{namespace}/pods", {}, pod, "POST")

    def delete(self, pod: Json) -> None:
        """Delete this pod, and no other one of its name."""
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        self._call(path, {}, {"preconditions": {"uid": meta["uid"]}}, "DELETE")

    def slices(self, node: str) -> list[Json]:
        found: list[Json] = self._call(
            "/apis/resource.k8s.io/v1/resourceslices", {"fieldSelector": f"spec.nodeName={node}"}
        )["items"]
        return found

    def patch(self, node: str, operations: list[Json]) -> None:
        """Apply all of the operations, or none."""
        self._call(f"/api/v1/nodes/{node}", {}, operations)

    def note(self, node: str, key: str, value: str) -> None:
        self._call(f"/api/v1/nodes/{node}", {}, {"metadata": {"annotations": {key: value}}})

    def _call(
        self, path: str, query: dict[str, str], change: list[Json] | Json | None = None, method: str = "PATCH"
    ) -> Json:
        url = f"{self._server}{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 (always https)
        request.add_header("Authorization", f"Bearer {(self._account / 'token').read_text().strip()}")
        if change is not None:
            request.method = method
            request.data = json.dumps(change).encode()
            kind = "json-patch+" if isinstance(change, list) else "merge-patch+" if method == "PATCH" else ""
            request.add_header("Content-Type", f"application/{kind}json")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as answer:  # noqa: S310
            found: Json = json.load(answer)
        return found


def look(api: Api, pools: Json, said: dict[str, str]) -> None:
    """Check every waiting node once; ``said`` has the last message on each, to avoid repeating it."""
    names = set()
    for node in api.waiting():
        name = node["metadata"]["name"]
        names.add(name)
        try:
            reasons = judge(api, node, pools.get(node["metadata"]["labels"][proof.POOL]))
            text = f"waits: {reasons}" if reasons else "is ready, its taint is lifted"
        except TROUBLE as error:
            text = f"waits: {type(error).__name__}: {error}"
        if said.get(name) != text:
            print(f"{name} {text}", flush=True)
            said[name] = text
    for gone in set(said) - names:
        del said[gone]


def judge(api: Api, node: Json, pool: Json | None) -> str:
    """Lift the node's taint, or annotate what it waits for; returns that text, empty if lifted."""
    name, noted = node["metadata"]["name"], node["metadata"].get("annotations") or {}
    pods = api.pods(name)
    there = proof.devices(api.slices(name)) if proof.claimed(node, pool) else {}
    now = datetime.datetime.now(datetime.UTC)
    reasons = proof.missing(node, pods, pool, there)
    if pool is not None and "trial" in pool:
        reasons += tried(api, node, pool, bool(reasons), now)
    text = "; ".join(reasons)[:LONGEST]
    if pool is not None and not reasons:
        api.patch(name, proof.lifting(node, proof.evidence(node, pods, pool, now)))
    elif noted.get(proof.WAITS_FOR) != text:
        api.note(name, proof.WAITS_FOR, text)
    return text


def tried(api: Api, node: Json, pool: Json, early: bool, now: datetime.datetime) -> list[str]:
    """Let a pod open a GPU of the node, and say what it waits for; ``early``: the node lacks something else.

    The pod is deleted before the node is admitted, and whenever the node lacks something again.
    """
    settings = pool["trial"]
    pods = api.pods(node["metadata"]["name"], settings["namespace"])
    found = next((one for one in pods if one["metadata"]["name"] == trial.name(node)), None)
    cordoned = bool(node["spec"].get("unschedulable"))  # its GPUs may be partitioned at this moment
    requested = trial.resource(proof.promise(node, pool), proof.RESOURCE, now)
    if early or cordoned or requested is None:
        if found is not None and "deletionTimestamp" not in found["metadata"]:
            api.delete(found)
        return ["it is cordoned, so no pod can try its GPUs"] if cordoned else []
    if found is None:
        try:
            api.create(trial.pod(node, requested, settings), settings["namespace"])
        except urllib.error.HTTPError as error:  # an admission plugin, for example for its RuntimeClass
            return [f"a pod that requests {requested} is refused: {json.load(error)['message']}"]
        return [trial.starts(requested)]
    if "deletionTimestamp" in found["metadata"]:
        return ["the last pod that tried a GPU is ending"]
    done = trial.succeeded(found)
    if done or trial.expired(found, now):
        api.delete(found)
    return [] if done else [trial.state(found)]


def main() -> None:
    """Check the nodes until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pools", type=Path)
    parser.add_argument("--every", type=float, default=5.0)
    parser.add_argument("--account", type=Path, default=ACCOUNT)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # PID 1 of a container has no default handler
    api, said, trouble = Api(args.account), dict[str, str](), ""
    pools: Json = json.loads(args.pools.read_text())
    while True:
        try:
            look(api, pools, said)
            trouble = ""
        except TROUBLE as error:
            text = f"{type(error).__name__}: {error}"
            if text != trouble:
                print(f"the API server: {text}", flush=True)
            trouble = text
        time.sleep(args.every)


if __name__ == "__main__":
    main()
