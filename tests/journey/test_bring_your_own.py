"""Manifests of others on a real control plane: they wait as they are, and run once they are fixed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.journey.conftest import Checkout, close, make_checkout
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

KINDS = Path(__file__).parents[1] / "manifests" / "kinds.yaml"
BUILT_IN = ("Pod", "Deployment", "StatefulSet", "Job", "CronJob")
ENVIRONMENT = {
    "name": "local",
    "cluster": {"kind": "embedded"},
    "scheduling": {"packer": True},
    "pools": [
        {"name": "shared", "machine": "g4dn.xlarge", "nodes": 3,
         "sharing": {"kind": "time_slicing", "replicas": 4}},
        {"name": "cpu", "machine": "m6i.xlarge", "nodes": 1},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    made = make_checkout(tmp_path_factory.mktemp("own"))
    file = made.paths.root / "Pulumi.local.yaml"
    file.write_text(yaml.safe_dump({"config": {"gpuform:environment": ENVIRONMENT}}))
    try:
        made.gpuform("local", "up")
        yield made
    finally:
        close(made)


def written(checkout: Checkout) -> Path:
    """The kinds of Kubernetes itself; a StatefulSet's request without a limit is refused as it is."""
    documents = [
        text for text in KINDS.read_text().split("---\n") if yaml.safe_load(text)["kind"] in BUILT_IN
    ]
    file = checkout.paths.root / "own.yaml"
    file.write_text(
        "---\n".join(documents).replace(", namespace: research", "").replace("  namespace: research\n", "")
    )
    return file


def phases(checkout: Checkout) -> Counter[str]:
    pods: list[dict[str, Any]] = json.loads(checkout.kubectl("get", "pods", "-o", "json"))["items"]
    return Counter(pod["status"]["phase"] for pod in pods)


def test_pods_wait_as_they_are_and_run_once_fixed(checkout: Checkout) -> None:
    file = written(checkout)
    asked = file.read_text().replace("requests:", "limits:")
    checkout.kubectl("apply", "-f", "-", input=asked)
    assert until(lambda: phases(checkout), lambda found: found["Pending"] == 6, 30) == {"Pending": 6}
    checkout.gpuform("check", "-f", "own.yaml", code=1)
    checkout.kubectl("delete", "-f", "-", "--wait", input=asked)
    checkout.gpuform("check", "-f", "own.yaml", "--fix")
    checkout.kubectl("apply", "-f", str(file))
    started = until(lambda: phases(checkout), lambda found: found["Running"] + found["Succeeded"] == 6, 60)
    assert set(started) <= {"Running", "Succeeded"}, "the pods of a job end"
    trial = checkout.kubectl("create", "job", "--from=cronjob/cron", "now", "-o", "name")
    until(lambda: phases(checkout), lambda found: found["Running"] + found["Succeeded"] == 7, 60)
    assert trial == "job.batch/now\n"
