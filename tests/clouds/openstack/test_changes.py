"""Sizes and versions that Magnum refuses of an existing cluster, and remedies that it takes."""

from __future__ import annotations

import itertools
import re
from functools import partial
from typing import Any

import pytest

from gpuform.checkout.errors import InputError
from gpuform.clouds.openstack import OPENSTACK, changes
from gpuform.stack.preflight import require_possible
from infra.model.base.guard_names import GUARD
from infra.model.environment import Environment
from infra.plan import losses
from tests.clouds.openstack.environments import A100, CLUSTER, T4, environment
from tests.clouds.openstack.fake_cloud import FakeCloud

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
        {"type": changes.NODE_GROUP, "id": "c-1/g-1", "outputs": group},
    ]
    return {"deployment": {"resources": resources}}


def refused(env: Environment, state: dict[str, Any] | None, live: bool = False) -> list[str]:
    try:
        require_possible(OPENSTACK.preflight.refusals, env, state, live)
    except InputError as error:
        return [str(one) for one in error.errors]
    return []


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


@pytest.mark.unit
def test_bounds_are_refused_exactly_if_magnum_does_and_the_remedy_leads_to_them() -> None:
    """Every group of up to four nodes, and every change of its bounds."""
    last, count = environment(elastic(1, 2), T4, **CAPI), 0
    declared = [elastic(a, b) for a, b in itertools.product(range(1, 5), repeat=2) if a < b]
    for pool in (*declared, *map(fixed, range(1, 5))):
        env = environment(
            pool, {**A100, "name": "others"}, **CAPI
        )  # autoscaled, so fixed groups have a minimum
        bounds = pool.get("elastic", {"min": pool.get("nodes"), "max": {"nodes": 0}})
        wanted = (bounds["min"], bounds["max"]["nodes"])
        for sizes in filter(takes, itertools.product(range(1, 5), range(5), range(5))):
            errors = refused(env, state_of(last, sizes))
            assert bool(errors) is not takes((sizes[0], *wanted)), (sizes, wanted, errors)
            count += len(errors)
            for text in errors:
                assert takes((carried_out(text, sizes)[0], *wanted)), text
    assert count > 100


@pytest.mark.unit
def test_what_is_read_of_refused_bounds() -> None:
    last = environment(elastic(2, 3), T4, **CAPI)
    (text,) = refused(environment(T4, elastic(5, 10), **CAPI), state_of(last, (3, 2, 3)))
    coe = "openstack --os-region-name cern coe"
    assert text == (
        "pools[1].elastic: Magnum counts 3 nodes, and refuses bounds that leave them out: 5 to 10; "
        f"run '{coe} nodegroup update research gpu-a100 replace max_node_count=10', wait for Magnum, "
        f"'{coe} cluster resize research 5 --nodegroup gpu-a100', wait for Magnum, then run `gpuform up`"
    )
    (text,) = refused(environment(fixed(6), {**A100, "name": "others"}, **CAPI), state_of(last, (3, 3, 0)))
    assert text.startswith(
        "pools[0].nodes: Magnum counts 3 nodes, and refuses bounds that leave them out: at least 6"
    )


@pytest.mark.unit
def test_a_group_or_cluster_that_is_new_or_replaced_has_no_refusal() -> None:
    last, env = environment(elastic(2, 3), **CAPI), environment(elastic(5, 10), **CAPI)
    state = state_of(last, (3, 2, 3))
    assert refused(env, state)
    assert not refused(environment({**elastic(5, 10), "name": "new-pool"}, **CAPI), state)
    assert not refused(environment({**elastic(5, 10), "machine": "g3.xlarge"}, **CAPI), state)
    assert not refused(environment(elastic(5, 10), **{**CAPI, "keypair": "others"}), state)
    assert not refused(env, {"deployment": {}})


@pytest.mark.unit
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
def test_versions(had: str, declared: str, driver: str, refusal: str) -> None:
    env = environment(elastic(1, 4), **{**CAPI, "driver": driver, "version": declared})
    text = "".join(refused(env, state_of(env, (1, 1, 4), had)))
    assert text.startswith("cluster.version: the cluster has ") is bool(refusal)
    assert refusal in text


@pytest.mark.tools
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
    assert backwards.startswith(
        "cluster.version: the cluster has v1.35.2, and its control plane does not go back"
    )
    assert bounds.startswith("pools[0].elastic: Magnum counts 4 nodes")
    assert refused(env, None, live=True) == [backwards, bounds]  # the state is kept elsewhere
    cloud.clusters = [{**CLUSTER, "uuid": "c-2"}]  # another stack's
    assert ask(live=True) == []
    cloud.clusters, cloud.refused = [CLUSTER], {"magnum": 503}
    assert ask(live=True) == []
