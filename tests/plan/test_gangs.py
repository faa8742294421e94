"""Gangs: the pools' topologies, the flavors with them, and the pods that Kueue places."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from infra.model.environment import Environment
from infra.plan import queues, workloads
from tests.config.edits import message
from tests.plan import aws_environments

pytestmark = pytest.mark.unit

ZONE, RACK, HOST = "topology.kubernetes.io/zone", "example.com/rack", "kubernetes.io/hostname"
ANY = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
WHOLE = {"name": "whole", "machine": "p4de.24xlarge", "nodes": 4}
OTHER = {"name": "other", "machine": "g4.p4.40g", "nodes": 2}
SHARES = {"name": "shares", "machine": "g2.5xlarge", "nodes": 1, "sharing": {"kind": "mps", "replicas": 4}}
GANG = {"gang": True, "indexed": True, "parallelism": 4, "count": 8, "pool": "whole"}


def mapping(
    *works: dict[str, Any], topology: dict[str, list[str]], pools: Any = (WHOLE, OTHER, SHARES)
) -> Any:
    quota = {"whole": 32, "other": 8, "shares": 4}
    team = {"name": "a", "namespaces": ["a"], "quota": quota}
    common = {"namespace": "a", "kind": "job", "queue": "a", "image": "a:1"}
    return {
        "name": "e",
        "cluster": {"kind": "embedded"},
        "pools": list(pools),
        "queues": {"teams": [team], "topology": topology},
        "workloads": [{"name": f"w{at}", **common, **one} for at, one in enumerate(works)],
    }


def of_kind(env: Environment, kind: str) -> list[dict[str, Any]]:
    return [one for one in queues.manifests(env) if one["kind"] == kind]


def placed(env: Environment, at: int = 0) -> dict[str, str]:
    """Annotations of the workload's pods, those of Pulumi aside."""
    found = workloads.objects(env, env.workloads[at])[-1]
    meta = found["metadata"] if found["kind"] == "Pod" else found["spec"]["template"]["metadata"]
    return {key: text for key, text in meta.get("annotations", {}).items() if not key.startswith("pulumi")}


def test_a_gang_is_an_indexed_job_that_kueue_places_as_a_whole() -> None:
    env = parse(mapping(GANG, topology={"whole": [ZONE]}))
    service, job = workloads.manifests(env)
    assert (service["kind"], job["apiVersion"], job["kind"]) == ("Service", "batch/v1", "Job")
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["backoffLimit"] == 24, "six failures of four pods, that end together"
    assert placed(env) == ANY
    (topology,) = of_kind(env, "Topology")
    assert topology["spec"] == {"levels": [{"nodeLabel": ZONE}, {"nodeLabel": HOST}]}
    flavors = {
        one["metadata"]["name"]: one["spec"].get("topologyName") for one in of_kind(env, "ResourceFlavor")
    }
    name = topology["metadata"]["name"]
    assert flavors == {name: name, "other": None, "shares": None}
    (queue,) = of_kind(env, "ClusterQueue")
    named = [flavor["name"] for group in queue["spec"]["resourceGroups"] for flavor in group["flavors"]]
    assert named == [name, "other", "shares"]
    assert name.startswith("whole-")


@pytest.mark.parametrize("kind", ["required", "preferred"])
def test_how_close_its_nodes_are_is_an_annotation_of_its_pods(kind: str) -> None:
    env = parse(mapping({**GANG, "topology": {kind: RACK}}, topology={"whole": [ZONE, RACK]}))
    assert placed(env) == {f"kueue.x-k8s.io/podset-{kind}-topology": RACK}


def test_a_changed_topology_or_taint_has_another_flavor() -> None:
    """Kueue 0.19.2 refuses both changes: CEL rules of ResourceFlavor and Topology."""

    def flavor(taints: list[dict[str, str]], *levels: str) -> str:
        env = parse(
            mapping(topology={"whole": list(levels)}, pools=({**WHOLE, "taints": taints}, OTHER, SHARES))
        )
        (name,) = [one["metadata"]["name"] for one in of_kind(env, "Topology")]
        return str(name)

    assert len({flavor([]), flavor([], ZONE), flavor([], RACK, ZONE), flavor([{"key": "a"}])}) == 4
    assert flavor([]) == flavor([])


@pytest.mark.parametrize("kind", ["job", "deployment", "pod"])
def test_in_a_queue_of_both_kinds_of_pool_every_workload_says_where_it_may_run(kind: str) -> None:
    works = [{"kind": kind, "pool": pool} for pool in ("whole", "other", "shares")]
    env = parse(mapping(*works, topology={"whole": []}))
    assert [placed(env, at) for at in range(3)] == [ANY, {}, {}]
    job = workloads.objects(env, env.workloads[0])[-1]
    assert "backoffLimit" not in job["spec"], "only a gang fails as a whole"


def test_kueue_cannot_choose_between_pools_with_and_without_a_topology() -> None:
    either = {"gpu": {"memory_gib": 30}}
    fact = "pool whole has a topology and pool other has none, and Kueue looks at one kind only"
    assert message(mapping(either, topology={"whole": []})) == f"workloads[0].queue: {fact}; name the pool"
    both = parse(
        mapping({**either, **GANG, "pool": None, "count": 4}, topology={"whole": [RACK], "other": []})
    )
    assert placed(both) == ANY


def test_a_job_in_a_queue_runs_in_one_pool() -> None:
    """Five nodes' worth of pods, and neither pool has five."""
    five = {"gpu": {"memory_gib": 30}, "count": 4, "parallelism": 9}
    fact = "all nodes of pool whole or other hold 8 such pods, and a job in a queue runs in one pool"
    remedy = "use fewer or smaller pods, or more nodes"
    found = mapping(five, topology={})
    found["queues"]["teams"][0]["quota"]["whole"] = 40
    assert message(found) == f"workloads[0].parallelism: {fact}; {remedy}"
    assert parse(mapping({**five, "parallelism": 8}, topology={}))


def test_an_elastic_pool_has_no_topology() -> None:
    """Kueue would wait for nodes that nothing buys: no pod exists before its job is admitted."""
    env = aws_environments.aws(aws_environments.SLICED).resolved()
    team = {"name": "a", "namespaces": ["a"], "quota": {"p0": 3}}
    fact = "the pool is elastic, and Kueue places pods only on nodes that exist"
    said = message({**env, "queues": {"teams": [team], "topology": {"p0": []}}})
    assert said == f"queues.topology.p0: {fact}; leave it out, or give the pool nodes: N"
