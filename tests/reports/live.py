"""Objects of a small live cluster: nodes, pods, and what Kueue has of teams."""

from __future__ import annotations

from typing import Any

from tests.build.environments import on

T4 = {"name": "t4", "machine": "g2.5xlarge", "sharing": {"kind": "time_slicing", "replicas": 4}}
ENV = on("embedded", T4, {"name": "cpu", "machine": "m6i.xlarge"}, name="test")


def node(name: str, pool: str, ready: str = "True", **allocatable: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"gpuform.io/pool": pool}},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "allocatable": {"cpu": "4", **{f"nvidia.com/{key}": value for key, value in allocatable.items()}},
        },
    }


def pod(name: str, on: str | None, status: dict[str, Any], shares: int = 0) -> dict[str, Any]:
    limits = {"cpu": "1", "nvidia.com/gpu.shared": str(shares)} if shares else {"cpu": "1"}
    spec = {"containers": [{"resources": {"limits": limits}}], **({"nodeName": on} if on else {})}
    return {"metadata": {"namespace": "default", "name": name}, "spec": spec, "status": status}


SHARE = "nvidia.com/gpu.shared"
NO_ROOM = "couldn't assign flavors to pod set main: insufficient unused quota, 1 more needed"


def queue(name: str, used: int, borrowed: int, flavored: str = "t4", **active: str) -> dict[str, Any]:
    flavor = {"name": flavored, "resources": [{"name": SHARE, "nominalQuota": "2"}]}
    usage = {"name": SHARE, "total": str(used), "borrowed": str(borrowed)}
    status: dict[str, Any] = {
        "admittedWorkloads": 1,
        "conditions": [{"type": "Active", "status": "True", **active}],
        "flavorsUsage": [{"name": flavored, "resources": [usage]}],
    }
    spec = {"resourceGroups": [{"coveredResources": [SHARE], "flavors": [flavor]}]}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def workload(name: str, namespace: str, *conditions: tuple[str, str, str], **spec: Any) -> dict[str, Any]:
    metadata = {
        "name": f"job-{name}",
        "namespace": namespace,
        "creationTimestamp": "2026-11-27T02:13:02Z",
        "ownerReferences": [{"kind": "Job", "name": name}],
    }
    message = [{"type": kind, "status": status, "message": why} for kind, status, why in conditions]
    return {"metadata": metadata, "spec": spec, "status": {"conditions": message}}
