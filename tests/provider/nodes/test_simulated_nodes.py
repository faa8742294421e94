"""SimulatedNodes on a real API server: adoption, drift, nodes that come and go, and runs that failed."""

from __future__ import annotations

import pytest

from gpuform.kubernetes.client import ApiError
from gpuform.provider.handler import Change, InitFailed
from gpuform.provider.nodes.cluster import managed_labels
from infra.model.base.labels import GPU_UNHEALTHY, POOL

pytestmark = [pytest.mark.cluster, pytest.mark.anyio]

TOKEN = "gpuform:nodes:SimulatedNodes"
TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}


def declared(pool, *numbers, labels=None, **more):
    own = {POOL: pool.name, "pool": pool.name, **(labels or {})}
    nodes = {f"{pool.name}-{number}": {} for number in numbers}
    template = {"annotations": {"kwok.x-k8s.io/node": "fake"}, "taints": [TAINT]}
    return {"selector": None, "labels": own, "nodes": nodes, **template, **more}


async def uids(pool):
    return {
        node["metadata"]["name"]: node["metadata"]["uid"] for node in await pool.cluster.nodes(pool.selector)
    }


async def changes(pool, **inputs):
    answer = await pool.invoke("diff", pool.name, pool.inputs, pool.outputs, await pool.check(**inputs))
    return dict(answer.changes)


async def test_nodes_come_and_go_and_the_others_stay(pool):
    first, second, third = [f"{pool.name}-{number}" for number in "012"]
    await pool.create(**declared(pool, 0, 1))
    before = await uids(pool)
    assert {*before} == {first, second}
    node = await pool.node(first)
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == first
    assert TAINT in node["spec"]["taints"]
    assert await changes(pool, **declared(pool, 0, 1)) == {}
    assert await changes(pool, **declared(pool, 0, 2, labels={"x.y/z": "1"})) == {
        'labels["x.y/z"]': Change.ADD,
        f"nodes.{second}": Change.DELETE,
        f"nodes.{third}": Change.ADD,
    }
    writes = pool.writes()
    await pool.preview(**declared(pool, 0, 2))
    assert writes == [], "a preview changes nothing"
    await pool.update(**declared(pool, 0, 2))
    assert writes == [("PATCH", f"/api/v1/nodes/{third}"), ("DELETE", f"/api/v1/nodes/{second}")]
    after = await uids(pool)
    assert {*after} == {first, third}
    assert after[first] == before[first]
    await pool.update(**declared(pool, 0, 2, labels={"x.y/z": "1"}))
    assert (await pool.labels(first))["x.y/z"] == "1"
    assert await uids(pool) == after
    await pool.delete()
    assert await uids(pool) == {}


async def test_nodes_of_the_kubernetes_provider_are_taken_over(pool):
    """Also a label that is given up later goes, and a field that another manager has set is overwritten."""
    name = f"{pool.name}-0"
    former = {"pool": pool.name, "kept": "former", "given-up": "former"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": former}}
    await pool.client.apply(f"/api/v1/nodes/{name}", body, manager="pulumi-kubernetes-5d8aff7d")
    before = await uids(pool)
    await pool.create(**declared(pool, 0, labels={"kept": "new", "given-up": "former"}))
    assert await uids(pool) == before
    assert managed_labels(await pool.node(name), "pulumi-kubernetes-5d8aff7d") == {}
    await pool.update(**declared(pool, 0, labels={"kept": "new"}))
    live = await pool.labels(name)
    assert (live["kept"], "given-up" in live) == ("new", False)


async def test_what_was_changed_by_hand_is_found_and_restored(pool):
    first, second, third = [f"{pool.name}-{number}" for number in "012"]
    await pool.create(**declared(pool, 0, 1, 2, labels={"a": "b"}))
    await pool.cluster.patch(first, {"metadata": {"labels": {POOL: None, "a": "c", "theirs": "x"}}})
    await pool.cluster.patch(second, {"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}})
    await pool.cluster.client.delete(f"/api/v1/nodes/{third}")
    writes = pool.writes()
    found = await pool.read()
    assert writes == [], "a refresh changes nothing"
    assert found.properties == found.inputs
    pool.inputs = pool.outputs = found.inputs
    assert await changes(pool, **declared(pool, 0, 1, 2, labels={"a": "b"})) == {
        f'nodes.{first}.metadata.labels["{POOL}"]': Change.DELETE,
        f"nodes.{first}.metadata.labels.a": Change.DELETE,
        f"nodes.{second}.spec.taints": Change.DELETE,
        f"nodes.{third}": Change.ADD,
    }
    assert found.inputs["nodes"][first] == {"metadata": {"labels": {POOL: "", "a": "c"}}}
    await pool.update(**declared(pool, 0, 1, 2, labels={"a": "b"}))
    assert (await pool.read()).inputs["nodes"] == {first: {}, second: {}, third: {}}
    assert (await pool.labels(first))["theirs"] == "x"


async def test_the_taint_of_the_health_loop_is_no_drift_and_stays(pool):
    name = f"{pool.name}-0"
    unhealthy = {"key": GPU_UNHEALTHY, "value": "replace", "effect": "NoSchedule"}
    await pool.create(**declared(pool, 0))
    await pool.cluster.patch(name, {"spec": {"taints": [TAINT, unhealthy]}})
    assert (await pool.read()).inputs["nodes"] == {name: {}}
    await pool.update(**declared(pool, 0, labels={"x.y/z": "1"}))
    assert unhealthy in (await pool.node(name))["spec"]["taints"]


async def test_a_node_of_a_killed_run_is_deleted_and_one_of_others_is_not(pool):
    await pool.create(**declared(pool, 0, 1))
    theirs = await pool.add_node("theirs", {POOL: pool.name})
    pool.inputs, pool.outputs = {}, {}  # the state of a run that was killed
    await pool.create(**declared(pool, 0))
    assert {*await uids(pool)} == {f"{pool.name}-0", theirs}


async def test_after_a_failure_the_rest_is_done_by_the_next_run(pool, monkeypatch):
    failing, apply = f"{pool.name}-1", pool.client.apply

    async def refuse(path, *args, **more):
        if path.endswith(failing):
            raise ApiError(403, {"message": "not now"})
        return await apply(path, *args, **more)

    monkeypatch.setattr(pool.client, "apply", refuse)
    with pytest.raises(InitFailed, match=f"node {failing}: not now") as caught:
        await pool.create(**declared(pool, 0, 1, 2))
    monkeypatch.setattr(pool.client, "apply", apply)
    pool.inputs, pool.outputs = await pool.check(**declared(pool, 0, 1, 2)), caught.value.properties
    assert {*await uids(pool)} == {f"{pool.name}-0", f"{pool.name}-2"}
    assert await changes(pool, **declared(pool, 0, 1, 2)) == {f"nodes.{failing}": Change.ADD}
    writes = pool.writes()
    await pool.update(**declared(pool, 0, 1, 2))
    assert writes == [("PATCH", f"/api/v1/nodes/{failing}")]
