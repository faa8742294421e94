"""Sizes and versions that Magnum refuses of a cluster, remedies that it takes, and what is drift there."""

from __future__ import annotations

import itertools
import re
from functools import partial
from typing import Any

import pytest

from gpuform.clouds.openstack import changes
from gpuform.clouds.openstack.changes import NODE_GROUP, OpenstackDrift
from gpuform.engine import Step
from gpuform.engine.events import Change
from gpuform.stack.drift import nodes
from infra.model.base.guard_names import GUARD
from infra.model.environment import Environment
from infra.plan import losses
from infra.plan.gpu_operator import driver_version
from infra.plan.sharing import pool_labels
from tests.clouds.findings import refused
from tests.clouds.openstack.environments import A100, CLUSTER, T4, environment
from tests.fakes.openstack import FakeCloud

pytestmark = pytest.mark.unit

CAPI = {"driver": "capi", "template": "k8s", "version": "1.34", "operator": {"driver": "host"}}
Sizes = tuple[int, int, int]


def elastic(least: int, most: int) -> dict[str, Any]:
    return {**A100, "elastic": {"min": least, "max": {"nodes": most}}}


def fixed(nodes: int) -> dict[str, Any]:
    return {"name": A100["name"], "machine": A100["machine"], "nodes": nodes}


def state_of(last: Environment, sizes: Sizes, version: str = "1.34") -> dict[str, Any]:
    """After an update: what the guard and Magnum's provider record of it."""
    nodes, least, most = sizes
    group = {"name": A100["name"], "nodeCount": nodes, "minNodeCount": least, "maxNodeCount": most}
    guarded = {"fixed": losses.contents(last), "pools": losses.pools(last)}
    stack = {"environment": {"cluster": {"version": version}}}
    resources = [
        {"type": "pulumi:pulumi:Stack", "outputs": stack},
        {"type": GUARD, "inputs": guarded},
        {"type": changes.CLUSTER, "id": "c-1", "outputs": {"name": "research"}},
        {"type": NODE_GROUP, "id": "c-1/g-1", "outputs": group},
    ]
    return {"deployment": {"resources": resources}}


def takes(sizes: Sizes) -> bool:
    """Magnum 23, ``_validate_node_count``; a maximum of 0 is none."""
    nodes, least, most = sizes
    return least <= nodes and (not most or max(nodes, least) <= most)


def carried_out(text: str, sizes: Sizes) -> Sizes:
    """The group after the commands of a remedy; each must be accepted."""
    for command in re.findall(r"'openstack [^']*coe ([^']+)'", text):
        nodes, least, most = sizes
        if changed := re.fullmatch(r"nodegroup update research gpu-a100 replace (m\w+)=(\d+)", command):
            low = int(changed[2]) if changed[1] == "min_node_count" else least
            high = int(changed[2]) if changed[1] == "max_node_count" else most
            sizes = (nodes, low, high)
            assert takes(sizes), (text, sizes)
        else:
            resized = re.fullmatch(r"cluster resize research (\d+) --nodegroup gpu-a100", command)
            assert resized, command
            sizes = (int(resized[1]), least, most)
            assert least <= sizes[0] <= (most or sizes[0]), (text, sizes)
    return sizes


def test_bounds_are_refused_exactly_if_magnum_does_and_the_remedy_leads_to_them() -> None:
    """Every group of up to four nodes, and every change of its bounds."""
    last, count = environment(elastic(1, 2), T4, **CAPI), 0
    declared = [elastic(a, b) for a, b in itertools.product(range(1, 5), repeat=2) if a < b]
    for pool in (*declared, *map(fixed, range(1, 5))):
        # Autoscaled, so fixed groups have a minimum.
        env = environment(pool, {**A100, "name": "others"}, **CAPI)
        bounds = pool.get("elastic", {"min": pool.get("nodes"), "max": {"nodes": 0}})
        wanted = (bounds["min"], bounds["max"]["nodes"])
        for sizes in filter(takes, itertools.product(range(1, 5), range(5), range(5))):
            errors = refused(env, state_of(last, sizes))
            assert bool(errors) is not takes((sizes[0], *wanted)), (sizes, wanted, errors)
            count += len(errors)
            for text in errors:
                assert takes((carried_out(text, sizes)[0], *wanted)), text
    assert count > 100


def test_refused_bounds_name_every_command() -> None:
    last = environment(elastic(2, 3), T4, **CAPI)
    (text,) = refused(environment(T4, elastic(5, 10), **CAPI), state_of(last, (3, 2, 3)))
    coe = "openstack --os-region-name cern coe"
    assert text == (
        "pools[1].elastic: Magnum counts 3 nodes, and refuses bounds that leave them out: 5 to 10; "
        f"run '{coe} nodegroup update research gpu-a100 replace max_node_count=10', wait for Magnum, "
        f"'{coe} cluster resize research 5 --nodegroup gpu-a100', wait for Magnum, then run `gpuform up`"
    )
    (text,) = refused(environment(fixed(6), {**A100, "name": "others"}, **CAPI), state_of(last, (3, 3, 0)))
    assert text.startswith("pools[0].nodes: Magnum counts 3 nodes, ")
    assert "refuses bounds that leave them out: at least 6" in text


def test_a_group_or_cluster_that_is_new_or_replaced_has_no_refusal() -> None:
    last, env = environment(elastic(2, 3), **CAPI), environment(elastic(5, 10), **CAPI)
    state = state_of(last, (3, 2, 3))
    assert refused(env, state)
    assert not refused(environment({**elastic(5, 10), "name": "new-pool"}, **CAPI), state)
    assert not refused(environment({**elastic(5, 10), "machine": "g3.xlarge"}, **CAPI), state)
    assert not refused(environment(elastic(5, 10), **{**CAPI, "keypair": "others"}), state)
    assert not refused(env, {"deployment": {}})


@pytest.mark.parametrize(
    ("had", "declared", "driver", "refusal"),
    [
        ("1.33", "1.34", "capi", ""),
        ("1.34", "1.34", "capi", ""),
        ("1.32", "1.34", "capi", "takes one minor version at a time; name a template of 1.33"),
        ("1.35", "1.34", "capi", "does not go back to 1.34; keep a template of 1.35"),
        ("1.31", "1.34", "heat", ""),  # another template replaces the cluster
    ],
)
def test_a_version_is_refused_by_its_distance(had: str, declared: str, driver: str, refusal: str) -> None:
    env = environment(elastic(1, 4), **{**CAPI, "driver": driver, "version": declared})
    text = "".join(refused(env, state_of(env, (1, 1, 4), had)))
    assert text.startswith("cluster.version: the cluster has ") is bool(refusal)
    assert refusal in text


def test_magnum_is_asked_and_without_an_answer_the_state_counts(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An autoscaler has added two nodes since the last update, and a person has upgraded the cluster."""
    monkeypatch.setattr(changes, "connect", lambda *_: cloud.connect(region="cern"))
    group = {"uuid": "g-1", "name": A100["name"], "node_count": 4, "min_node_count": 1, "max_node_count": 4}
    cloud.node_groups, cloud.clusters = [group], [{**CLUSTER, "coe_version": "v1.35.2"}]
    last, env = environment(elastic(1, 4), **CAPI), environment(elastic(1, 3), **CAPI)
    ask = partial(refused, env, state_of(last, (2, 1, 4)))
    assert ask() == []
    backwards, bounds = ask(live=True)
    assert "the cluster has v1.35.2, and its control plane does not go back" in backwards
    assert bounds.startswith("pools[0].elastic: Magnum counts 4 nodes")
    assert refused(env, None, live=True) == [backwards, bounds]  # the state is kept elsewhere
    cloud.clusters = [{**CLUSTER, "uuid": "c-2"}]  # another stack's
    assert ask(live=True) == []
    cloud.clusters, cloud.refused = [CLUSTER], {"magnum": 503}
    assert ask(live=True) == []


ELASTIC = {"nodes": None, "elastic": {"min": 1, "max": {"nodes": 2}}}
ENV = environment({**T4, "name": "whole", "nodes": 1}, {**T4, "name": "ci", **ELASTIC})
TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}


def node(name: str, group: str, **more: Any) -> dict[str, Any]:
    labels = {**pool_labels(ENV, ENV.pool(group)), "magnum.openstack.org/nodegroup": group}
    labels["nvidia.com/cuda.driver-version.full"] = driver_version(ENV)
    return {
        "metadata": {"name": name, "labels": {**labels, **more.get("labels", {})}},
        "spec": {"taints": more.get("taints", [TAINT])},
        "status": {"allocatable": {"nvidia.com/gpu": "1"}},
    }


def drift_rows(*nodes_found: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    return [
        (row.resource, row.path, row.how, row.expected, row.found)
        for row in nodes.check_nodes(ENV, OpenstackDrift(), list(nodes_found))
    ]


def test_a_node_that_lost_its_label_is_still_its_groups() -> None:
    lost = node("w", "whole", labels={"gpuform.io/pool": ""})
    label = 'metadata.labels["gpuform.io/pool"]'
    assert drift_rows(lost, node("a", "ci")) == [("Node w", label, "missing", "whole", "none")]
    bare = node("w", "whole", taints=[])
    path = "spec.taints[nvidia.com/gpu:NoSchedule]"
    assert drift_rows(bare, node("a", "ci")) == [("Node w", path, "missing", "true", "none")]


def test_numbers_of_nodes_are_drift_outside_of_the_bounds() -> None:
    fixed, three = node("w", "whole"), [node(name, "ci") for name in "abc"]
    assert drift_rows(fixed, *three[:1]) == drift_rows(fixed, *three[:2]) == []
    assert drift_rows(fixed, *three) == [("pool ci", "nodes", "added", "1 to 2", "3")]
    assert drift_rows() == [
        ("pool whole", "nodes", "missing", "1", "0"),
        ("pool ci", "nodes", "missing", "1 to 2", "0"),
    ]


@pytest.mark.parametrize(
    ("type_", "name", "path", "expected"),
    [
        (NODE_GROUP, "ci", "nodeCount", True),
        (NODE_GROUP, "whole", "nodeCount", False),
        (NODE_GROUP, "ci", "maxNodeCount", False),
        (NODE_GROUP, "whole", "labels.availability_zone", True),
        (changes.CLUSTER, "research", 'labels["kube.tag"]', True),
        (changes.CLUSTER, "research", "nodeCount", False),
        ("kubernetes:core/v1:ConfigMap", "ci", "labels", False),
    ],
)
def test_fields_that_magnum_or_the_autoscaler_sets(type_: str, name: str, path: str, expected: bool) -> None:
    change = Change({"name": name}, {}, (path,), ())
    step = Step("update", f"urn:pulumi:s::gpuform::{type_}::x", "planned", change)
    assert OpenstackDrift().is_expected(ENV, step, path) is expected
