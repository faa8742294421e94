"""The fast way on a real control plane: Karpenter's core buys, the operands act, the gate lets pods in."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gpuform.embedded import ControlPlane
from gpuform.paths import Paths
from gpuform.rehearse.fast import Fast, fast
from gpuform.rehearse.gate import readiness_gate
from gpuform.toolchain import Toolchain
from infra.model.prices import PriceList
from infra.plan import karpenter
from tests.conftest import Plane
from tests.plan.aws_environments import SLICED, aws
from tests.rehearse.market_site import Site

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def taint(team: str) -> dict[str, object]:
    return {"taints": [{"key": "for", "value": team}]}


ENV = aws(
    {**SLICED, "name": "shares", **taint("a")},
    {"name": "models", "gpu": {"models": ["L4", "A10G"], "count": 1}, "capacity": ["spot"], **taint("b")},
)
SHARED, GPU = "nvidia.com/gpu.shared", "nvidia.com/gpu"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Iterator[tuple[Site, Fast]]:
    folder, here = tmp_path_factory.mktemp("fast"), Paths.here()
    paths = Paths(root=here.root, state=folder / "state", cache=here.cache)
    plane = ControlPlane(paths, toolchain)
    with ExitStack() as held:
        held.callback(plane.stop, delete=True)
        plane.start()
        site = Site(Plane(paths, toolchain, plane), ENV)
        site.lay(folder)
        for pool in ENV.pools:  # the stack's own, which this Karpenter does not serve
            site.apply(*karpenter.node_pools(ENV, pool))
        buyer = held.enter_context(fast(ENV, PriceList(), paths, toolchain, folder / "karpenter.log"))
        held.enter_context(readiness_gate(paths, toolchain, folder / "gate"))
        yield site, buyer


def test_pods_run_on_nodes_that_were_bought_for_them(place: tuple[Site, Fast]) -> None:
    site, buyer = place
    site.run("tensorflow", 4, "shares", **{SHARED: "1"})
    site.run("models", 2, "models", **{GPU: "1"})
    shared, whole = site.running("tensorflow", 4), site.running("models", 2)
    assert sorted(Counter(pod["spec"]["nodeName"] for pod in shared).values()) == [1, 3]
    assert len({pod["spec"]["nodeName"] for pod in whole}) == 2
    assert site.late([*shared, *whole]) == []
    # By the list: a g6.xlarge (L4) is the cheaper one of the two models' smallest.
    types = {"shares": {"g4dn.xlarge"}, "models": {"g6.xlarge"}}
    for pool, machines in types.items():
        nodes = site.get("nodes", "-l", f"gpuform.io/pool={pool}")["items"]
        assert {one["metadata"]["labels"]["node.kubernetes.io/instance-type"] for one in nodes} == machines
        assert {one["metadata"]["name"]: buyer.paid()[one["metadata"]["name"]] for one in nodes} == {
            one["metadata"]["name"]: 0.526 if pool == "shares" else 0.8048 for one in nodes
        }
    (node, *_) = site.get("nodes", "-l", "gpuform.io/pool=shares")["items"]
    assert node["status"]["allocatable"][SHARED] == "3"
    assert node["status"]["allocatable"]["cpu"] == "3900m"  # as it was born, no default of the kubelet's
    assert "karpenter.sh/initialized" in node["metadata"]["labels"]


def test_nodes_go_when_their_pods_have_gone(place: tuple[Site, Fast]) -> None:
    site, _ = place
    patch = json.dumps({"spec": {"disruption": {"consolidateAfter": "1s", "budgets": [{"nodes": "100%"}]}}})
    for one in site.get("nodepools")["items"]:
        site.kubectl("patch", "nodepool", one["metadata"]["name"], "--type=merge", "-p", patch)
    site.kubectl("scale", "deployment", "tensorflow", "-n", "default", "--replicas=2")
    site.until(
        lambda: len(site.get("nodes", "-l", "gpuform.io/pool=shares")["items"]) == 1, "one of two nodes to go"
    )


def test_the_stacks_own_pools_are_left_alone(place: tuple[Site, Fast]) -> None:
    site, _ = place
    own = [one for pool in ENV.pools for one in karpenter.node_pools(ENV, pool)]
    for one in own:
        found = site.get("nodepool", one["metadata"]["name"])
        assert found["spec"]["template"] == one["spec"]["template"] | {
            "spec": found["spec"]["template"]["spec"]
        }
        assert found["spec"]["template"]["spec"]["nodeClassRef"]["kind"] == "EC2NodeClass"
    served = {one["metadata"]["labels"]["karpenter.sh/nodepool"] for one in site.get("nodeclaims")["items"]}
    assert not served & {one["metadata"]["name"] for one in own}
