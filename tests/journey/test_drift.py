"""Manual changes outside the stack file: each is reported, and a check changes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.journey.conftest import HERE, Checkout, close, make_checkout

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

# Kinds that a run could change. Pods and their controllers act by themselves when a node is deleted.
KINDS = "nodes,configmaps,namespaces,secrets"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    checkout = make_checkout(tmp_path_factory.mktemp("drift"))

    def three(environment: dict[str, Any]) -> None:
        kept = {pool["name"]: pool for pool in environment["pools"]}
        environment["pools"] = [kept["t4-shared"], kept["a100-mig"], {**kept["cpu"], "nodes": 1}]
        web = {"name": "web", "namespace": "team", "pool": "a100-mig", "slice": "2g.10gb", "image": "web:1"}
        job = {"name": "train", "namespace": "team", "kind": "job", "image": "train:1"}
        environment["workloads"] = [{**web, "kind": "deployment"}, job]
        environment["namespaces"] = [{"name": "team", "quota": {"a100-mig": {"2g.10gb": 2}}}]

    checkout.change(three)
    try:
        checkout.gpuform("local", "up")
        yield checkout
    finally:
        close(checkout)


def versions(checkout: Checkout) -> dict[str, str]:
    """The resourceVersion of every object that may have been changed.

    A node's heartbeat changes its version every few minutes: for nodes it is the content.
    """
    items = json.loads(checkout.kubectl("get", KINDS, "-A", "-o", "json"))["items"]
    found = {}
    for one in items:
        metadata = one["metadata"]
        name = f"{one['kind']} {metadata.get('namespace', '')}/{metadata['name']}"
        kept = {key: metadata.get(key) for key in ("uid", "labels", "annotations")}
        content = json.dumps(
            [kept, one.get("spec"), one.get("status", {}).get("allocatable")], sort_keys=True
        )
        found[name] = content if one["kind"] == "Node" else metadata["resourceVersion"]
    return found


def state(checkout: Checkout) -> bytes:
    (file,) = (checkout.paths.state / "engine" / "backend").rglob("stacks/gpuform/local.json")
    return file.read_bytes()


def quiet(checkout: Checkout) -> dict[str, str]:
    """Versions after the simulator and the controllers have settled."""
    before, deadline = versions(checkout), time.monotonic() + 120
    while time.monotonic() < deadline:
        time.sleep(10)
        if (now := versions(checkout)) == before:
            return now
        before = now
    raise AssertionError("the cluster does not come to rest")


def untouched(checkout: Checkout, before: dict[str, str], kept: bytes) -> None:
    now = versions(checkout)
    assert {name for name in {*now, *before} if now.get(name) != before.get(name)} == set()
    assert state(checkout) == kept


def test_there_is_none_after_up(small: Checkout) -> None:
    before = quiet(small), state(small)
    done = small.gpuform("drift", "local")
    assert done.stdout.splitlines()[-1].strip() == "local: no drift"
    untouched(small, *before)


def test_a_change_of_what_runs_is_previewed_against_it(small: Checkout) -> None:
    before = quiet(small), state(small)
    text = small.paths.root / "Pulumi.local.yaml"
    declared = text.read_text()

    def whole(environment: dict[str, Any]) -> None:
        environment["pools"][0]["sharing"] = {"kind": "exclusive"}
        environment["cost"]["prices"]["g2.5xlarge"] += 1.0

    small.change(whole)
    try:
        shown = json.loads(small.gpuform("preview", "local", "--json").stdout)
    finally:
        text.write_text(declared)
    assert (shown["live"], shown["offline"]) == (True, False)
    assert shown["verdict"].startswith("evicts no pods; ")
    assert "pool t4-shared" in [one["what"] for one in shown["effects"]]
    costs = shown["cost"]["before"]["per_hour"]["high"], shown["cost"]["after"]["per_hour"]["high"]
    assert costs[1] - costs[0] == pytest.approx(2.0)
    untouched(small, *before)


def test_what_was_changed_by_hand_is_named_and_left(small: Checkout) -> None:
    maps = small.kubectl("-n", "gpu-operator", "get", "configmaps", "-o", "name").split()
    sharing = next(name for name in maps if "time-slicing" in name)
    small.kubectl("label", "node", "t4-shared-0", "gpuform.io/pool-")
    small.kubectl("taint", "node", "t4-shared-1", "nvidia.com/gpu-")
    data = {"default": "version: v2", "mine": "version: v1"}
    small.kubectl("-n", "gpu-operator", "patch", sharing, "--type=merge", "-p", json.dumps({"data": data}))
    small.kubectl("label", "node", "a100-mig-0", "nvidia.com/mig.config=all-disabled", "--overwrite")
    small.kubectl("delete", "node", "cpu-0")
    before = quiet(small), state(small)
    found = json.loads(small.gpuform("drift", "local", "--json", code=3).stdout)
    untouched(small, *before)
    assert (found["stack"], found["drift"]) == ("local", True)
    told = {(one["resource"], one["path"]): one for one in found["findings"]}
    label = told["Node t4-shared-0", 'metadata.labels["gpuform.io/pool"]']
    assert (label["how"], label["expected"], label["found"]) == ("missing", "t4-shared", "none")
    assert told["Node t4-shared-1", "spec.taints[nvidia.com/gpu:NoSchedule]"]["how"] == "missing"
    edited = f"ConfigMap gpu-operator/{sharing.split('/')[1]}"
    assert told[edited, "data.default"]["how"] == "changed"
    assert told[edited, "data.mine"]["how"] == "added"
    layout = told["Node a100-mig-0", 'metadata.labels["nvidia.com/mig.config"]']
    assert (layout["how"], layout["expected"], layout["found"]) == (
        "changed",
        "3g.20gb-2x2g.10gb",
        "all-disabled",
    )
    slices = told["Node a100-mig-0", 'status.allocatable["nvidia.com/mig-3g.20gb"]']
    assert (slices["expected"], slices["found"]) == ("1", "0")
    assert told["Node cpu-0", ""]["how"] == "missing"
    named = {one["resource"] for one in found["findings"]}
    assert named - {"MigLayout mig-a100-mig"} == {
        "Node t4-shared-0",
        "Node t4-shared-1",
        edited,
        "Node a100-mig-0",
        "Node cpu-0",
    }


def test_what_was_changed_by_hand_is_restored(small: Checkout) -> None:
    """What the test before has changed, and what `kubectl` and `helm` own from then on."""
    quota = small.kubectl("-n", "team", "get", "resourcequota", "-o", "name").strip()
    small.kubectl("-n", "team", "scale", "deployment/web", "--replicas=2")
    small.kubectl("-n", "team", "set", "image", "deployment/web", "*=web:2")
    patched = {quota: {"spec": {"hard": {"requests.nvidia.com/mig-2g.10gb": "0"}}}}
    patched["job/train"] = {"spec": {"suspend": True, "backoffLimit": 1}}
    for name, patch in patched.items():
        small.kubectl("-n", "team", "patch", name, "--type=merge", "-p", json.dumps(patch))
    small.kubectl(
        "label", "namespace", "team", "pod-security.kubernetes.io/enforce=privileged", "--overwrite"
    )
    small.kubectl("taint", "node", "t4-shared-0", "mine=1:NoSchedule")
    release = ("gpu-operator", "-n", "gpu-operator")
    small.helm(
        "upgrade",
        *release,
        "--reuse-values",
        "--set",
        "driver.version=1.2.3",
        str(HERE.root / "charts/gpu-operator-sim"),
    )
    found = json.loads(small.gpuform("drift", "local", "--json", code=3).stdout)["findings"]
    told = {(one["resource"], one["path"]): (one["expected"], one["found"]) for one in found}
    assert told["Deployment team/web", "spec.replicas"] == ("1", "2")
    assert told["Deployment team/web", "spec.template.spec.containers[web].image"] == ("web:1", "web:2")
    assert told["Node t4-shared-0", "spec.taints[mine:NoSchedule]"] == ("none", "1")
    done = small.gpuform("drift", "local", "--repair").stdout
    repaired = len(found), len({one["resource"] for one in found})
    assert done.splitlines()[-1].strip() == "local: repaired {} in {} resources; no drift".format(*repaired)
    assert "drift local --repair" not in done
    assert "takes back .spec.replicas from kubectl" in done
    assert json.loads(small.gpuform("drift", "local", "--json").stdout)["findings"] == []


def test_a_release_that_was_uninstalled_by_hand_is_installed_again(small: Checkout) -> None:
    small.helm("uninstall", "gpu-operator", "-n", "gpu-operator")
    small.kubectl("-n", "team", "delete", "deployment", "web")
    small.gpuform("up", "local", "--refresh")
    assert json.loads(small.gpuform("drift", "local", "--json").stdout)["findings"] == []


def test_a_cluster_that_is_not_there_is_a_failure(small: Checkout) -> None:
    small.gpuform("local", "stop")
    for command in ("drift", "status"):
        failed = small.gpuform(command, "local", code=1).stderr
        assert "start it with `gpuform local start`" in failed
        assert "PULUMI_K8S" not in failed
