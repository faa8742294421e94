"""Claims on simulated nodes: published by the played driver, allocated by the real scheduler, released.

Pods with a device terminate as on a real node, so the deletion of their owner in the last test does not hang.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.kubernetes.kinds import RESOURCE_CLAIM, RESOURCE_SLICE
from gpuform.usage.cluster_objects import Claims, parse_claims
from gpuform.usage.status import summarise_status
from infra.model.placement import quotas
from infra.model.pool import allocatable
from infra.plan import dra, gpu_operator, nodes, sharing, workloads
from tests.build.environments import on

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

ROOT = Path(__file__).parents[3]
LAYOUT = {"3g.20gb": 1, "2g.10gb": 2}
WHOLE = {"name": "whole", "machine": "g6.12xlarge", "sharing": {"kind": "dra"}}
CUT = {"name": "cut", "machine": "g4.p1.40g", "sharing": {"kind": "dra", "layout": LAYOUT}}
TWO = {"kind": "deployment", "replicas": 2}
ADA = {"memory_gib": 20, "compute": "8.9", "family": "ada-lovelace"}
TRAIN = {"name": "train", "pool": "whole", "count": 2, "gpu": ADA, **TWO}
SERVE = {"name": "serve", "pool": "cut", "slice": "2g.10gb", **TWO}


@pytest.fixture(scope="module")
def planned(site: Any) -> Any:
    """The nodes, ConfigMaps and both releases as planned; ``site`` removes them."""
    env = on("embedded", WHOLE, CUT, workloads=[TRAIN, SERVE])
    for result in (gpu_operator.release(env), dra.release(env)):
        assert result
        values = site.plane.paths.state / f"{result.name}.json"
        values.write_text(json.dumps(result.values))
        if result.name == "gpu-operator":
            site.apply(*filter(None, [sharing.mig_parted_config_map(env)]))
            for pool in env.pools:
                site.apply(*nodes.simulated_nodes(env, pool))
            # Before the operator runs, which may write its default over a label that has just been set.
            site.label("cut-0", "nvidia.com/mig.config", "3g.20gb-2x2g.10gb")
        where = ["-n", result.namespace, "-f", str(values)]
        site.helm("install", result.name, str(ROOT / result.chart), *where)
    yield env
    site.helm("uninstall", "dra-driver-nvidia-gpu", "-n", "gpu-operator", "--wait")


def claimed_now(site: Any) -> Claims:
    lists = [
        json.loads(site.kubectl("get", kind.resource, "-A", "-o", "json"))["items"]
        for kind in (RESOURCE_SLICE, RESOURCE_CLAIM)
    ]
    return parse_claims(*lists)


def test_the_driver_publishes_whole_gpus_and_slices_once_they_are_cut(site: Any, planned: Any) -> None:
    offers = {f"{pool.name}-0": allocatable.claimable(pool) for pool in planned.pools}
    assert offers == {"whole-0": {"gpu.nvidia.com": 4}, "cut-0": {"mig.nvidia.com": 3}}
    site.until(lambda: claimed_now(site).devices, offers.__eq__)
    live = json.loads(site.kubectl("get", "resourceslices", "cut-0-gpu.nvidia.com", "-o", "json"))
    assert [device["name"] for device in live["spec"]["devices"]] == [
        "gpu-0-mig-2g10gb-14-0",
        "gpu-0-mig-2g10gb-14-2",
        "gpu-0-mig-3g20gb-9-4",
    ]
    for name in offers:
        assert set(site.allocatable(name).values()) <= {0}, "nothing is counted that is claimed"


def test_the_scheduler_gives_what_there_is_and_says_what_is_missing(site: Any, planned: Any) -> None:
    objects = workloads.manifests(planned)
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    site.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", input=everything)
    for name in ("train", "serve"):
        site.kubectl("scale", f"deployment/{name}", "--replicas=3")  # one more than the node can have
        two = ("--for=jsonpath={.status.readyReplicas}=2", "--timeout=60s")
        site.kubectl("wait", f"deployment/{name}", *two)
    pods = json.loads(site.kubectl("get", "pods", "-n", "default", "-o", "json"))["items"]
    has = claimed_now(site)
    given = [uuid for pod in pods for uuid in has.allocated_to(pod)]
    assert len(given) == len(set(given)) == 6, "two GPUs for each of two pods, one slice for each of two"
    assert {uuid[:4] for uuid in given} == {"GPU-", "MIG-"}
    waiting = [pod["metadata"]["name"] for pod in pods if "nodeName" not in pod["spec"]]
    assert sorted(name.split("-")[0] for name in waiting) == ["serve", "train"]
    for name in waiting:
        site.events(name, "cannot allocate all claims")
    live = json.loads(site.kubectl("get", "nodes", "-o", "json"))["items"]
    used = summarise_status(planned, live, pods, has)
    assert {pool.name: (pool.nodes[0].used, pool.settled) for pool in used.pools} == {
        "whole": ({"gpu.nvidia.com": 4}, True),
        "cut": ({"mig.nvidia.com": 2}, True),
    }


def test_a_quota_counts_devices_by_class(site: Any, planned: Any) -> None:
    site.kubectl("scale", "deployment/train", "--replicas=1")
    keys = [key for pool in planned.pools for key in quotas.quota_keys(pool)]
    spec = {"hard": dict.fromkeys(keys, "1")}
    meta = {"name": "gpus", "namespace": "default"}
    site.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": spec})
    try:
        expected = {keys[0]: "2", keys[1]: "3"}
        site.until(lambda: site.get("resourcequota", "gpus")["status"].get("used"), expected.__eq__)
        site.kubectl("scale", "deployment/train", "--replicas=2")
        output = "exceeded quota: gpus, requested: gpu.nvidia.com.deviceclass.resource.k8s.io/devices=2"
        site.until(
            lambda: site.kubectl("get", "events", "-n", "default", "-o", "json"), lambda text: output in text
        )
    finally:
        site.kubectl("delete", "resourcequota", "gpus")


def test_another_layout_is_another_slice_once_nothing_is_claimed(site: Any, planned: Any) -> None:
    before = json.loads(site.kubectl("get", "resourceslices", "cut-0-gpu.nvidia.com", "-o", "json"))["spec"]
    site.label("cut-0", "nvidia.com/mig.config", "all-disabled")
    site.labelled("cut-0", "nvidia.com/mig.config.state", "failed")
    site.events("cut-0", "In use by another client: default/serve-")
    site.kubectl("delete", "deployment", "train", "serve", "--cascade=foreground", "--timeout=30s")
    site.kubectl("label", "node", "cut-0", "nvidia.com/mig.config-", "nvidia.com/mig.config.state-")
    site.label("cut-0", "nvidia.com/mig.config", "all-disabled")
    site.until(lambda: claimed_now(site).devices["cut-0"], {"gpu.nvidia.com": 1}.__eq__, 60)
    after = json.loads(site.kubectl("get", "resourceslices", "cut-0-gpu.nvidia.com", "-o", "json"))["spec"]
    assert after["pool"]["generation"] == before["pool"]["generation"] + 1
