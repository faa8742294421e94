"""Stops notebooks with an editor that has ended because it was idle, or shut down by its user; runs in a pod.

    culler.py [--every SECONDS] [--account FOLDER] NOTEBOOKS

NOTEBOOKS is a JSON file: a list of namespace and name of StatefulSets with one pod each. An editor that is
idle ends with exit code 0 (its own settings say when), and the kubelet starts it again. Then the StatefulSet
is scaled to 0, which frees the GPU; an editor that has crashed has another exit code, and stays. The next pod
has no former exit code. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
import time
import urllib.error
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # python3 -I does not search this folder
if TYPE_CHECKING:
    from infra.incluster import cluster, events
else:
    import cluster
    import events

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NAME = "notebook-culler"

Json = dict[str, Any]


class Notebooks(cluster.Cluster):
    """The notebooks of one API server; methods raise one of ``cluster.TROUBLE``."""

    def pod(self, namespace: str, name: str) -> Json | None:
        """The notebook's pod; None while it is stopped."""
        try:
            return self._call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}-0")
        except urllib.error.HTTPError as error:
            if error.code != cluster.NOT_FOUND:
                raise
            return None

    def stop(self, namespace: str, name: str) -> None:
        path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}/scale"
        self._call("PATCH", path, {}, {"spec": {"replicas": 0}})


def ended(pod: Json, name: str) -> bool:
    """Whether the editor has ended by itself, not by a crash, since the pod was started."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    states = [
        one.get(key) or {}
        for one in pod.get("status", {}).get("containerStatuses", ())
        for key in ("state", "lastState")
        if one["name"] == name
    ]
    return any((was.get("terminated") or {}).get("exitCode") == 0 for was in states)


def look(server: Notebooks, notebooks: list[list[str]]) -> None:
    """Stop every notebook with an editor that has ended; what fails is tried again in the next round."""
    for namespace, name in notebooks:
        try:
            pod = server.pod(namespace, name)
            if pod is None or not ended(pod, name):
                continue
            server.stop(namespace, name)
            print(f"{namespace}/{name}: stopped", flush=True)
            server.event(_event(namespace, name, pod))
        except cluster.TROUBLE as error:
            print(f"{namespace}/{name}: {type(error).__name__}: {error}", flush=True)


def _event(namespace: str, name: str, pod: Json) -> Json:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    (owner,) = pod["metadata"]["ownerReferences"]
    about = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "namespace": namespace}
    about["uid"] = owner["uid"]
    message = f"the editor was idle or shut down; kubectl scale statefulset {name} --replicas=1 starts it"
    return events.event(NAME, "Normal", "NotebookStopped", about, message, now, namespace)


def main() -> None:
    """Look until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("notebooks", type=Path)
    parser.add_argument("--every", type=float, default=30.0)
    parser.add_argument("--account", type=Path, default=ACCOUNT)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # PID 1 of a container has no default handler
    server = Notebooks(args.account)
    while True:
        look(server, json.loads(args.notebooks.read_text()))
        time.sleep(args.every)


if __name__ == "__main__":
    main()
