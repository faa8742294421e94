"""Planned notebooks on the real Kueue, with the culler: an idle one is stopped, and the next one starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.plan import notebooks, quotas, workloads
from infra.plan import queues as planned
from lab.rehearse.program import Program
from tests.lab.sidecars.controllers.conftest import Queues
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

OWN = {"kind": "notebook", "editor": "jupyterlab", "namespace": "lab", "queue": "lab", "pool": "t4"}
KEPT = {"home": {"size": "1Gi"}, "cull": {"idle_minutes": 60}}
ENV = parse(
    {
        "name": "e",
        "cluster": {"kind": "embedded"},
        "pools": [{"name": "t4", "machine": "g2.5xlarge", "nodes": 1}],
        "queues": {"teams": [{"name": "lab", "namespaces": ["lab"], "quota": {"t4": 1}}]},
        "workloads": [{"name": user, "user": user, **OWN, **KEPT} for user in ("ada", "bob")],
    }
)


def pod(queues: Queues, user: str) -> dict[str, Any]:
    result = queues.items("pods", "lab", "-l", f"gpuform.io/user={user}")
    return result[0] if result else {}


def runs(queues: Queues, user: str) -> None:
    until(
        lambda: pod(queues, user).get("status", {}).get("phase"),
        lambda phase: phase == "Running",
        what=lambda: queues.why(user, "lab"),
    )


def ends(queues: Queues, user: str) -> None:
    """As a kubelet reports a container that has ended by itself and was started again."""
    was = {"exitCode": 0, "reason": "Completed"}
    now = {"name": user, "image": "a", "imageID": "a", "ready": True, "restartCount": 1}
    status = {"containerStatuses": [{**now, "state": {"running": {}}, "lastState": {"terminated": was}}]}
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    queues.kubectl("patch", "pod", f"{user}-0", "-n", "lab", *patch)


def put(queues: Queues, *manifests: dict[str, Any]) -> None:
    """Server-side apply, as Pulumi's provider does it."""
    queues.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(manifests))


def scale(queues: Queues, user: str, replicas: int) -> None:
    queues.kubectl("scale", "statefulset", user, "-n", "lab", f"--replicas={replicas}")


def test_an_idle_notebook_is_stopped_and_gives_its_gpu_to_the_next_and_returns_with_its_home(
    queues: Queues, tmp_path: Path
) -> None:
    release = planned.release(ENV)
    assert release is not None
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(release.values))
    put(queues, *quotas.namespaces(ENV))
    queues.operator()
    queues.offers(queues.node("gpu-0", "1eb8", 1), {"gpu": 1})
    queues.label("gpu-0", "gpuform.io/pool", "t4")
    queues.install("-f", str(values))
    put(queues, *planned.manifests(ENV), *notebooks.manifests(ENV))
    ada, bob = (workloads.objects(ENV, workload) for workload in ENV.workloads)
    put(queues, *ada)
    runs(queues, "ada")
    put(queues, *bob)
    until(lambda: queues.workload("bob", "lab").get("status"), bool)
    until(
        lambda: queues.condition("bob", "lab", "QuotaReserved").get("status"),
        lambda status: status == "False",
    )
    (home,) = queues.items("persistentvolumeclaims", "lab", "-l", "gpuform.io/user=ada")
    assert home["status"]["phase"] == "Bound"

    culler = Program(notebooks.NAME, "the culler", queues.cluster.kubeconfig, tmp_path, 1.0, notebooks.CULLER)
    with culler.running():
        ends(queues, "ada")
        until(lambda: pod(queues, "ada"), lambda found: not found, what=culler.log.read_text)
        runs(queues, "bob")
    (event,) = [item for item in queues.items("events", "lab") if item["reason"] == "NotebookStopped"]
    assert event["involvedObject"]["name"] == "ada"

    put(queues, *ada)  # the next update
    result = json.loads(queues.kubectl("get", "statefulset", "ada", "-n", "lab", "-o", "json"))
    assert result["spec"]["replicas"] == 0
    scale(queues, "bob", 0)
    until(lambda: pod(queues, "bob"), lambda found: not found)
    scale(queues, "ada", 1)
    runs(queues, "ada")
    volumes = pod(queues, "ada")["spec"]["volumes"]
    assert home["metadata"]["name"] in [
        volume.get("persistentVolumeClaim", {}).get("claimName") for volume in volumes
    ]
    queues.kubectl("delete", "statefulset", "ada", "-n", "lab")
    (left,) = queues.items("persistentvolumeclaims", "lab", "-l", "gpuform.io/user=ada")
    assert left["metadata"]["uid"] == home["metadata"]["uid"]
    queues.kubectl("delete", "persistentvolumeclaim", left["metadata"]["name"], "-n", "lab")
    volume = left["spec"]["volumeName"]
    until(lambda: queues.kubectl("get", "persistentvolumes", "-o", "name"), lambda names: volume not in names)
