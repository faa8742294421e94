"""What the programs in the cluster share: the client of the API server, events, log and command line.

Part of the ConfigMap of each program; none of their accounts may do all of this. Standard library only,
Python 3.11 or newer.
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
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE_SIZE = 100  # objects in one answer; bounds the pod's memory in a large cluster
TIMEOUT_S = 10.0
MAX_MESSAGE = 1000  # characters of an event's message, or of a reason on a node
MAX_NAME = 253
CONFLICT, NOT_FOUND = 409, 404

Json = dict[str, Any]
ERRORS = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError)
"""Exceptions raised if the server refuses, is unreachable, or sends an unreadable answer."""


def parse_arguments(interval: float, *options: str) -> argparse.Namespace:
    """The command line: ``settings`` is the content of its JSON file. SIGTERM ends the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("settings", type=lambda path: json.loads(Path(path).read_text()))
    parser.add_argument("--every", type=float, default=interval)
    parser.add_argument("--account", type=Path, default=ACCOUNT)
    for option in options:
        parser.add_argument(option, default="")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # PID 1 of a container has no default handler
    return parser.parse_args()


def format_time(seconds: float) -> str:
    """A time in seconds since 1970 as Kubernetes writes it."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> float:
    """Seconds since 1970 of a time as Kubernetes writes it."""
    return datetime.datetime.fromisoformat(text).timestamp()


def describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def has_status(error: BaseException, *codes: int) -> bool:
    """Whether the server has answered with one of these HTTP codes."""
    return isinstance(error, urllib.error.HTTPError) and error.code in codes


class Log:
    """The log of one program; it remembers the last text on each subject."""

    def __init__(self) -> None:
        self.last_texts: dict[str, str] = {}

    def log_change(self, subject: str, text: str) -> None:
        """Print what differs from the last text on the subject; an empty text clears it."""
        if text and self.last_texts.get(subject) != text:
            print(text, flush=True)
        self.last_texts[subject] = text

    def keep(self, subjects: set[str]) -> None:
        """Forget all other subjects."""
        self.last_texts = {subject: text for subject, text in self.last_texts.items() if subject in subjects}


class Cluster:
    """One API server; methods raise one of ``TROUBLE``. ``namespace`` is the account's own."""

    def __init__(self, account: Path, server: str = "") -> None:
        """``account`` is the folder with token, CA and namespace; ``server`` defaults to the pod's own."""
        if not server:
            host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
            server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._server, self._account = server, account
        self.namespace = (account / "namespace").read_text().strip()
        self._tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
        # Python 3.13 requires key identifiers, EKS and Magnum leave them out (kubernetes-client/python#2394).
        self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT

    def nodes(self, label: str) -> Iterator[Json]:
        return self.list_all("/api/v1/nodes", {"labelSelector": label})

    def on_node(self, path: str, node: str) -> list[Json]:
        """The objects of a list with this node in their spec."""
        return list(self.list_all(path, {"fieldSelector": f"spec.nodeName={node}"}))

    def watch(self, selector: str, seconds: float) -> Iterator[Json]:
        """Nodes that a selector matches, then each one that is added or modified, for ``seconds``.

        The server may end it earlier. The next call lists all nodes again first, so that no change is lost.
        """
        query = {"labelSelector": selector}
        version = yield from self.list_all("/api/v1/nodes", query)
        query |= {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(max(1, int(seconds)))}
        with self._open("GET", "/api/v1/nodes", query, timeout=seconds + TIMEOUT_S) as answer:
            for line in answer:
                event: Json = json.loads(line)
                if event["type"] == "ERROR":  # mostly an expired version: the next call lists anew
                    return
                if event["type"] in ("ADDED", "MODIFIED"):
                    yield event["object"]

    def change_node(
        self,
        node: Json,
        annotations: dict[str, str | None],
        taints: list[Json],
        labels: dict[str, str] | None = None,
    ) -> None:
        """Patch annotations and labels, and set all taints; refused if the node changed since it was read."""
        metadata = {"annotations": annotations, "resourceVersion": node["metadata"]["resourceVersion"]}
        metadata |= {"labels": labels} if labels else {}
        self.patch_node(node, {"metadata": metadata, "spec": {"taints": taints or None}})

    def patch_node(self, node: Json, changes: Json | list[Json]) -> None:
        """Merge these changes into a node; a list is a JSON patch: all of its operations, or none."""
        self.request("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", {}, changes)

    def delete(self, path: str, item: Json) -> None:
        """Delete this object, and no other one of its name."""
        meta = item["metadata"]
        self.request("DELETE", f"{path}/{meta['name']}", {}, {"preconditions": {"uid": meta["uid"]}})

    def get(self, path: str) -> Json | None:
        try:
            return self.request("GET", path)
        except urllib.error.HTTPError as error:
            if error.code != NOT_FOUND:
                raise
            return None

    def config_map(self, name: str) -> Json:
        """A ConfigMap of our namespace; a new one has no resourceVersion yet."""
        metadata = {"name": name, "namespace": self.namespace}
        new = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}}
        return self.get(f"{self._maps}/{name}") or new

    def write(self, config_map: Json, data: dict[str, str]) -> Json:
        """Create a ConfigMap, or replace it if it has not changed since it was read; returns the result."""
        method, path = "POST", self._maps
        if "resourceVersion" in config_map["metadata"]:
            method, path = "PUT", f"{path}/{config_map['metadata']['name']}"
        return self.request(method, path, {}, {**config_map, "data": data})

    @property
    def _maps(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    def create_event(
        self, program: str, kind: str, reason: str, involved: Json, message: str, now: float
    ) -> None:
        """Create an event of type ``kind`` (Normal, Warning); about a node, in the namespace default."""
        name, namespace = involved["name"][: MAX_NAME - 20], involved.get("namespace", "default")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{time.time_ns():x}", "namespace": namespace},
            "involvedObject": involved,
            "type": kind,
            "reason": reason,
            "message": message[:MAX_MESSAGE],
            "count": 1,
            "firstTimestamp": format_time(now),
            "lastTimestamp": format_time(now),
            "source": {"component": program},
            "reportingComponent": program,
            "reportingInstance": program,
        }
        self.request("POST", f"/api/v1/namespaces/{namespace}/events", {}, event)

    def list_all(self, path: str, query: dict[str, str]) -> Generator[Json, None, str]:
        """Every object of a list; returns the list's resourceVersion."""
        query = {**query, "limit": str(PAGE_SIZE)}
        while True:
            page = self.request("GET", path, query)
            yield from page["items"]
            token = page["metadata"].get("continue")
            if not token:
                return str(page["metadata"].get("resourceVersion", ""))
            query = {**query, "continue": token}

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Json | list[Json] | None = None,
        kind: str = "merge-patch+json",
    ) -> Json:
        """The server's answer; ``kind`` is the patch's, unless the body is a list: a JSON patch."""
        with self._open(method, path, query, body, kind) as answer:
            result: Json = json.load(answer)
        return result

    def _open(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Json | list[Json] | None = None,
        kind: str = "",
        timeout: float = TIMEOUT_S,
    ) -> Any:
        url = f"{self._server}{path}?{urllib.parse.urlencode(query or {})}"
        request = urllib.request.Request(url, method=method)  # noqa: S310 (always https)
        request.add_header("Accept", "application/json")
        request.add_header("Authorization", f"Bearer {(self._account / 'token').read_text().strip()}")
        if body is not None:
            request.data = json.dumps(body).encode()
            kind = "json-patch+json" if isinstance(body, list) else kind
            request.add_header("Content-Type", f"application/{kind if method == 'PATCH' else 'json'}")
        return urllib.request.urlopen(request, timeout=timeout, context=self._tls)  # noqa: S310


def node_reference(node: Json) -> Json:
    """The reference to a node for an event."""
    meta = node["metadata"]
    return {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
