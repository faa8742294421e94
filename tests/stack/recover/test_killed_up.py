"""``up`` of an AWS stack, killed at twenty random moments and run again each time.

Offline: the program, the engine, the Kubernetes provider and the API server are real, and AWS is a stand-in
that stores created resources only in the engine's state. ``test_pending_at_aws`` tests what a killed run
may have created at a real AWS.
"""

from __future__ import annotations

import copy
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpuform.engine.places import Places
from tests.components.aws_stacks import small
from tests.journey.aws_world import World, world

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

STACK, KILLS = "labs", 20
MOMENTS_S = 4.0
"""Latest kill, in seconds after a run has the lock; for one in five, after its start."""
UP = (
    "import sys; from pathlib import Path;"
    "from gpuform.engine import Engine; from gpuform.checkout.paths import Paths;"
    "from gpuform.clouds import RECOVERIES; from gpuform.stack.recover import Stack, resume;"
    "from lab.toolchain import Toolchain;"
    "paths = Paths(*map(Path, sys.argv[1:])); engine = Engine(paths, Toolchain(paths), offline=True);"
    "stack = Stack('labs', paths, engine, RECOVERIES, at_cloud=False);"
    "engine.up('labs', settle=lambda left: resume(stack, left, print))"
)
POOL = {
    "name": "t4",
    "machine": "g4dn.xlarge",
    "elastic": {"max": {"cpu": 8}},
    "sharing": {"kind": "time_slicing", "replicas": 3, "rename": True},
}
WORKLOAD = {
    "name": "notebook",
    "namespace": "work",
    "kind": "deployment",
    "replicas": 1,
    "pool": "t4",
    "memory": "1Gi",
    "image": "python:3.12",
    "command": ["sleep", "inf"],
}


def stacks() -> tuple[dict[str, Any], dict[str, Any]]:
    """Two environments, so that a finished run has work again: the other has more of everything."""
    one = small(POOL)
    one["cluster"]["network"]["zones"] = ["us-west-2a", "us-west-2b"]
    one["workloads"] = [WORKLOAD]
    other = copy.deepcopy(one)
    other["cluster"]["network"]["nat"] = "per_zone"
    other["cluster"]["admins"] = ["arn:aws:iam::111122223333:role/gpu-admins"]
    other["pools"].append({**POOL, "name": "l4", "machine": "g6.xlarge"})
    other["workloads"].append({**WORKLOAD, "name": "batch", "namespace": "more"})
    return one, other


def test_the_same_command_again_always_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    moments = random.Random(7)  # the same moments in every run of this test
    one, other = stacks()
    struck: list[int] = []
    with world(tmp_path, STACK, one) as here:
        while len(struck) < KILLS:
            at_work = moments.random() < 0.8
            if run_until(here, moments.uniform(0, MOMENTS_S), at_work):
                struck.append(len(locks(here)))
            else:
                one, other = other, one
                write(here, one)
        assert sum(struck) >= KILLS / 2, f"too few were at work when they were killed: {struck}"
        assert not run_until(here, 300), "the last one is let go through"
        planned = here.run("preview")
        assert not planned.changed, planned.steps
        require_once(here)


def write(here: World, environment: dict[str, Any]) -> None:
    here.file.write_text(json.dumps({"config": {"gpuform:environment": environment}}))


def run_until(here: World, seconds: float, at_work: bool = False) -> bool:
    """Kill the command with all its children after ``seconds``; return whether it was still running.

    The time counts from its start, or, with ``at_work``, from when it has the stack's lock. A run that ends
    before that must have succeeded.
    """
    before = set(locks(here))
    paths = here.checkout.paths
    command = [sys.executable, "-c", UP, str(paths.root), str(paths.state), str(paths.cache)]
    process = subprocess.Popen(
        command,
        cwd=paths.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    while at_work and process.poll() is None and not set(locks(here)) - before:
        time.sleep(0.02)
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return True
    assert process.returncode == 0, said
    return False


def require_once(here: World) -> None:
    """Everything exists once: in the state, in the cluster, and for helm; and the stack is not locked."""
    deployment = here.engine.deployment(here.engine.environment(STACK)[0], STACK)["deployment"]
    assert not deployment.get("pending_operations")
    resources = deployment["resources"]
    assert not [one["urn"] for one in resources if one.get("delete")]
    assert set(Counter(one["urn"] for one in resources).values()) == {1}
    at_aws = [(one["type"], one["id"]) for one in resources if one["type"].startswith("aws:")]
    assert len(at_aws) > 60
    assert set(Counter(at_aws).values()) == {1}
    release = "kubernetes:helm.sh/v3:Release"
    objects = [one for one in resources if one["type"].startswith("kubernetes:") and one["type"] != release]
    assert cluster_has(here, {one["type"] for one in objects}) == {
        (one["type"], one["id"]) for one in objects
    }
    listed = json.loads(helm(here, "list", "-A", "-a", "-o", "json"))
    assert {one["status"] for one in listed} == {"deployed"}
    assert sorted(f"{one['namespace']}/{one['name']}" for one in listed) == sorted(
        one["id"] for one in resources if one["type"] == release
    )
    assert not locks(here)


def locks(here: World) -> list[Path]:
    return list(Places(here.checkout.paths, offline=True).locks("gpuform", STACK).glob("*.json"))


def cluster_has(here: World, types: set[str]) -> set[tuple[str, str]]:
    """Type and id of every object of these kinds that the engine's provider has applied."""
    found = set()
    for token in types:
        _, place, kind = token.split(":")
        group, _, version = place.partition("/")
        asked = kind if group == "core" else f"{kind}.{version}.{group}"
        listed = json.loads(here.kubectl("get", asked, "-A", "-o", "json", "--show-managed-fields"))
        for item in listed["items"]:
            metadata = item["metadata"]
            managers = [one["manager"] for one in metadata.get("managedFields") or ()]
            if any(name.startswith("pulumi-kubernetes-") for name in managers):
                space = f"{metadata['namespace']}/" if "namespace" in metadata else ""
                found.add((token, f"{space}{metadata['name']}"))
    return found


def helm(here: World, *words: str) -> str:
    program = str(here.tools.path("helm"))
    command = [program, *words, "--kubeconfig", str(here.checkout.paths.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
