"""The health loop on a real API server, with its own account, and a stand-in of Magnum that makes nodes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.config import parse
from infra.model.environment import Environment
from infra.model.health import HEALTH
from tests.conftest import Plane
from tests.incluster.health_site import Loop, Site, Stub
from tests.incluster.magnum_stub import MagnumStub
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

POOL = "gpu-a100"
SERVERS = {f"a100-{number}": str(uuid.UUID(int=number + 1)) for number in range(4)}


def declared() -> Environment:
    return parse(
        {
            "name": "research",
            "cluster": {"kind": "openstack", "template": "k", "version": "1.34"},
            "pools": [{"name": POOL, "machine": "g4.p1.40g", "nodes": 3}],
            "monitoring": {},
            "health": {"mode": "replace", "openstack_secret": "magnum", "budget": "100%"},
        }
    )


@pytest.fixture
def magnum() -> Iterator[MagnumStub]:
    stub = MagnumStub(**{POOL: 3})
    yield stub
    stub.close()


@pytest.fixture
def site(control_plane: Plane, magnum: MagnumStub, tmp_path: Path) -> Iterator[Site]:
    """Three nodes of the group; whose server Magnum removes is gone, and the next one joins."""
    prometheus = Stub()
    site = Site(control_plane, tmp_path / "site", prometheus)

    def removed(server: str) -> None:
        (name,) = (name for name, own in SERVERS.items() if own == server)
        site.kubectl("delete", "node", name, "--wait=true")

    magnum.removed = removed
    magnum.added = lambda group: site.nodes("a100-3", pool=group, servers=SERVERS)
    site.install(declared())
    site.nodes("a100-0", "a100-1", "a100-2", pool=POOL, servers=SERVERS)
    yield site
    site.forget()
    site.kubectl("delete", "deployments", "--all", "-n", "default")
    site.kubectl("delete", "pods", "--all", "-n", "default", "--force", "--grace-period=0")
    site.kubectl("delete", "namespace", HEALTH, "--ignore-not-found", "--wait=true")
    prometheus.close()


def works(site: Site, node: str) -> None:
    """A Deployment whose only pod runs on that node, and may run on the others."""
    labels = {"app": "work"}
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]
    prefers = [{"weight": 1, "preference": terms[0]}]
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "image": "x"}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": prefers}},
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    own = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    site.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "work"}, "spec": own})
    until(lambda: at(site), node.__eq__)


def at(site: Site) -> str:
    """The node of the pod that runs."""
    found = json.loads(site.kubectl("get", "pods", "-l", "app=work", "-o", "json"))["items"]
    there = [pod["spec"].get("nodeName", "") for pod in found if "deletionTimestamp" not in pod["metadata"]]
    return there[0] if there else ""


def state(site: Site) -> dict[str, Any]:
    found = site.kubectl("get", "configmap", "gpu-health-state", "-n", HEALTH, "-o", "json")
    return dict(json.loads(json.loads(found)["data"]["state.json"]))


def names(site: Site) -> list[str]:
    nodes = json.loads(site.kubectl("get", "nodes", "-l", "gpuform.io/pool", "-o", "json"))["items"]
    return sorted(node["metadata"]["name"] for node in nodes)


def said(loop: Loop) -> list[str]:
    return [str(one["why"]) for one in loop.lines() if str(one.get("action", "")).startswith("rebuil")]


def test_a_node_with_a_broken_gpu_is_replaced_and_a_loop_that_was_killed_goes_on(
    site: Site, magnum: MagnumStub, tmp_path: Path
) -> None:
    works(site, "a100-0")
    secret = magnum.secret(tmp_path / "secret")
    magnum.slow = 10_000  # under way until the loop is started anew
    site.prometheus.ill("a100-0")
    with site.loop(openstack=secret) as loop:
        until(lambda: magnum.resizes, bool)
        until(lambda: state(site)["rebuilds"][0]["stage"], "removing".__eq__)
        assert at(site) != "a100-0"
        assert loop.done()[0] == ("replace", "a100-0", "done")
        assert {one[:2] for one in loop.done()[1:]} == {("rebuild", "a100-0")}
        assert "waits for its pods to go: default/work-" in said(loop)[0]
    assert magnum.resizes == [(POOL, 2, [SERVERS["a100-0"]])]
    assert site.taints() == {"a100-0": "replace"}
    assert site.ticket("a100-0") is None
    magnum.slow = 1
    magnum._under_way[POOL] = 1
    with site.loop(openstack=secret) as loop:
        until(lambda: names(site), ["a100-1", "a100-2", "a100-3"].__eq__)
        until(lambda: said(loop)[-1:], [f"{POOL} has 3 nodes again, one of them new"].__eq__)
        loop.looked(2)
        assert loop.metrics()["gpuform_health_rebuilds"] == 0
    assert magnum.resizes[1:] == [(POOL, 3, [])]
    assert magnum.groups[POOL]["node_count"] == 3
    assert state(site)["rebuilds"] == []
    reasons = [reason for reason, _ in site.events("a100-0")]
    assert reasons[0] == "GpuNodeReplaced"
    assert reasons[-1] == "GpuNodeRebuilt"
    assert site.ticket("a100-0") is None


def test_without_a_credential_a_person_gets_a_ticket(site: Site, magnum: MagnumStub) -> None:
    works(site, "a100-0")
    site.prometheus.ill("a100-0")
    with site.loop() as loop:
        ticket = until(lambda: site.ticket("a100-0"), bool)
        loop.looked(2)
    assert "not replaced by Magnum: no credential: its Secret is not there" in ticket["data"]["ticket.md"]
    assert "- GPU 0 (GPU-a100-0): XID 79, class replace\n" in ticket["data"]["ticket.md"]
    assert at(site) == "a100-0"
    assert site.taints() == {"a100-0": "replace"}
    assert magnum.resizes == []
    assert "GpuNodeNotRebuilt" in [reason for reason, _ in site.events("a100-0")]


def test_pods_are_listed_and_evicted_and_secrets_are_not_read(site: Site) -> None:
    me = f"--as=system:serviceaccount:{HEALTH}:{HEALTH}"
    listed = site.kubectl("auth", "can-i", "--list", me, "-n", "default").splitlines()[1:]
    rows = {" ".join(line.split()) for line in listed}
    assert {"pods [] [] [list]", "pods/eviction [] [] [create]", "nodes [] [] [list patch]"} <= rows
    assert not [row for row in rows if row.startswith(("secrets", "configmaps"))]
