"""What a real API server refuses with Karpenter's real CRDs, including CEL rules.

tests/checks/test_api_server.py shows that it accepts every planned object.
"""

from __future__ import annotations

import copy
import json
import subprocess
from typing import Any

import pytest

from gpuform.checkout.paths import Paths
from infra import versions
from infra.model.environment import Environment
from infra.plan import karpenter, node_class, overlays
from lab.offline.charts import Charts
from tests.conftest import Kubectl, Plane
from tests.plan.aws_environments import TABLE

pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def karpenter_crds(control_plane: Plane) -> Kubectl:
    """kubectl on a control plane with Karpenter's CRDs; they stay, since other files need them."""
    here = Paths.here()
    charts = Charts(here.root, here.cache, control_plane.paths.state / "charts")
    chart = charts.folder("karpenter-crd", versions.KARPENTER)
    helm = [str(control_plane.toolchain.path("helm")), "template", str(chart)]
    crds = subprocess.run(helm, check=True, capture_output=True, text=True).stdout
    control_plane.kubectl("apply", "--server-side", "-f", "-", input=crds)
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", "-", input=crds)
    return control_plane.kubectl


def planned(env: Environment) -> list[Manifest]:
    found: list[Manifest] = []
    for pool in env.pools:
        if pool.by_karpenter:
            found.append(node_class.ec2_node_class(env, pool, node_class.node_role(env), env.name))
        found += [*karpenter.node_pools(env, pool), *overlays.node_overlays(env, pool)]
    return found


def submit(kubectl: Kubectl, *manifests: Manifest) -> str:
    items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    arguments = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")
    return kubectl(*arguments, input=json.dumps(items))


def test_a_static_pool_is_taken_and_stays_one(karpenter_crds: Kubectl) -> None:
    (static,) = (one for one in planned(TABLE["claimed"]) if "replicas" in one["spec"])
    for key, value, said in (
        ("weight", 10, "'weight' is not supported on static NodePools"),
        ("limits", {"nodes": "3", "cpu": "8"}, "only 'limits.nodes' is supported on static NodePools"),
        ("replicas", -1, "spec.replicas"),
    ):
        with pytest.raises(AssertionError) as refused:
            submit(karpenter_crds, {**static, "spec": {**static["spec"], key: value}})
        assert said in str(refused.value)
    karpenter_crds("apply", "--server-side", "-f", "-", input=json.dumps(static))
    elastic = {**static, "spec": {key: value for key, value in static["spec"].items() if key != "replicas"}}
    with pytest.raises(AssertionError) as kept:
        submit(karpenter_crds, elastic)
    assert "Cannot transition NodePool between static" in str(kept.value)
    karpenter_crds("delete", "nodepool", static["metadata"]["name"])


BAD: list[tuple[str, tuple[str, ...], Any, str]] = [
    ("NodePool", ("spec", "replicas"), 2, "'weight' is not supported on static NodePools"),
    ("NodePool", ("spec", "weight"), 101, "spec.weight"),
    ("NodePool", ("spec", "template", "spec", "expireAfter"), "2 hours", "expireAfter"),
    ("EC2NodeClass", ("spec", "amiFamily"), "Bottlerocket", "when using an AL2023 alias"),
    ("EC2NodeClass", ("spec", "tags"), {"karpenter.sh/nodepool": "x"}, "restricted tag"),
    ("EC2NodeClass", ("spec", "instanceProfile"), "x", "exactly one of ['role', 'instanceProfile']"),
    ("NodeOverlay", ("spec", "capacity"), {"cpu": "4"}, "invalid resource restricted"),
    ("NodeOverlay", ("spec", "price"), "cheap", "spec.price"),
]


@pytest.mark.parametrize(("kind", "path", "value", "said"), BAD)
def test_the_server_refuses_what_is_wrong(
    karpenter_crds: Kubectl, kind: str, path: tuple[str, ...], value: Any, said: str
) -> None:
    good = next(manifest for manifest in planned(TABLE["sliced"]) if manifest["kind"] == kind)
    bad = copy.deepcopy(good)
    place = bad
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    submit(karpenter_crds, good)
    with pytest.raises(AssertionError) as refused:
        submit(karpenter_crds, bad)
    assert said in str(refused.value)
