"""Lifts the startup taint of GPU nodes that keep their pool's promise; runs in a pod.

    readiness_gate.py [--every SECONDS] [--account FOLDER] POOLS

POOLS is a JSON file: by the name of a pool, the ``labels`` that discovery sets on its nodes, the ``operands``
that need a ready pod (by its label ``app``) on each node, and what each node ``offers``. A node's annotation
``gpuform.io/offers`` takes precedence, or ``gpuform.io/offers-per-gpu`` if nodes of a pool differ in their
number of GPUs. Extended resources are read from the node's allocatable, device classes from its
ResourceSlices. Until all is there the taint stays, whatever else happens (no answer from the API server, a
failing operand, an unreadable promise), and an annotation says what is missing. Only our taint is removed, in
one patch that the server refuses if the taints have changed meanwhile.

``proof.py`` says what a node must prove. Otherwise standard library only, Python 3.11 or newer.
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

sys.path.insert(0, str(Path(__file__).parent))  # python3 -I does not search this folder
import proof  # type: ignore[import-not-found,unused-ignore]

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

    def pods(self, node: str) -> list[Json]:
        """Pods on one node in the operator's namespace, which is also ours."""
        found: list[Json] = self._call(
            f"/api/v1/namespaces/{self._namespace}/pods", {"fieldSelector": f"spec.nodeName={node}"}
        )["items"]
        return found

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

    def _call(self, path: str, query: dict[str, str], change: list[Json] | Json | None = None) -> Json:
        url = f"{self._server}{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 (always https)
        request.add_header("Authorization", f"Bearer {(self._account / 'token').read_text().strip()}")
        if change is not None:
            request.method = "PATCH"
            request.data = json.dumps(change).encode()
            kind = "json-patch" if isinstance(change, list) else "merge-patch"
            request.add_header("Content-Type", f"application/{kind}+json")
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
    reasons = proof.missing(node, pods, pool, there)
    text = "; ".join(reasons)[:LONGEST]
    if pool is not None and not reasons:
        now = datetime.datetime.now(datetime.UTC)
        api.patch(name, proof.lifting(node, proof.evidence(node, pods, pool, now)))
    elif noted.get(proof.WAITS_FOR) != text:
        api.note(name, proof.WAITS_FOR, text)
    return text


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
