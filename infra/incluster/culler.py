"""Stops notebooks with an editor that has ended because it was idle, or shut down by its user; runs in a pod.

    culler.py [--every SECONDS] [--account FOLDER] NOTEBOOKS

NOTEBOOKS is a JSON file: a list of namespace and name of StatefulSets with one pod each. An editor that is
idle ends with exit code 0 (its own settings say when), and the kubelet starts it again. Then the StatefulSet
is scaled to 0, which frees the GPU; an editor that has crashed has another exit code, and stays. The next pod
has no former exit code. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

if "infra" not in sys.modules:  # in a pod, where the files are in one folder
    for package in ("infra", "infra.incluster"):
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [str(Path(__file__).parent)]
from infra.incluster.cluster import ERRORS, Cluster, describe_error, parse_arguments

NAME = "notebook-culler"

Json = dict[str, Any]


def has_ended(pod: Json, name: str) -> bool:
    """Whether the editor has ended by itself, not by a crash, since the pod was started."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    states = [
        status.get(key) or {}
        for status in pod.get("status", {}).get("containerStatuses", ())
        for key in ("state", "lastState")
        if status["name"] == name
    ]
    return any((state.get("terminated") or {}).get("exitCode") == 0 for state in states)


def stop_ended(server: Cluster, notebooks: list[list[str]]) -> None:
    """Stop every notebook with an editor that has ended; what fails is tried again in the next round."""
    for namespace, name in notebooks:
        try:
            pod = server.get(f"/api/v1/namespaces/{namespace}/pods/{name}-0")  # None while it is stopped
            if pod is None or not has_ended(pod, name):
                continue
            scale = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}/scale"
            server.request("PATCH", scale, {}, {"spec": {"replicas": 0}})
            print(f"{namespace}/{name}: stopped", flush=True)
            (owner,) = pod["metadata"]["ownerReferences"]
            owner_ref = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "namespace": namespace}
            owner_ref["uid"] = owner["uid"]
            hint = f"kubectl scale statefulset {name} --replicas=1 starts it"
            message = f"the editor was idle or shut down; {hint}"
            server.create_event(NAME, "Normal", "NotebookStopped", owner_ref, message, time.time())
        except ERRORS as error:
            print(f"{namespace}/{name}: {describe_error(error)}", flush=True)


def main() -> None:
    """Look until SIGTERM."""
    args = parse_arguments(30.0)
    server = Cluster(args.account)
    while True:
        stop_ended(server, args.settings)
        time.sleep(args.every)


if __name__ == "__main__":
    main()
