"""What training declares: adapters, huge pages, /dev/shm, numbered pods that find each other, and gangs."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from infra.model.base import labels
from infra.model.environment import Environment
from infra.plan import eks, karpenter, queues, user_data, workloads
from infra.plan.nodes import aws_nodes
from tests.build import aws_environments
from tests.build.aws_environments import aws
from tests.build.edits import message
from tests.build.environments import declared, pod_spec

pytestmark = pytest.mark.unit

H100: dict[str, Any] = {
    "machine": "p5.48xlarge",
    "elastic": {"max": {"nvidia.com/gpu": 32}},
    "zones": ["us-west-2a"],
    "aws": {"efa": True},
    "hugepages": "10Gi",
}


def environment(pool: dict[str, Any] = H100, **work: Any) -> Environment:
    return aws(pool, workloads=[{"name": "train", "kind": "job", "pool": "p0", "image": "a:1", **work}])


def made(**work: Any) -> list[dict[str, Any]]:
    return list(workloads.manifests(environment(**work)))


@pytest.mark.parametrize("kind", ["pod", "deployment", "job"])
def test_what_it_needs_is_requested_and_mounted(kind: str) -> None:
    env = environment(kind=kind, efa=32, hugepages="5Gi", shm="64Gi", memory="128Gi")
    (found,) = workloads.manifests(env)
    spec = pod_spec(found)
    (container,) = spec["containers"]
    for side in ("requests", "limits"):
        asked = container["resources"][side]
        assert (asked["vpc.amazonaws.com/efa"], asked["hugepages-2Mi"]) == ("32", "5Gi")
    assert container["volumeMounts"] == [
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "hugepages", "mountPath": "/dev/hugepages"},
    ]
    assert spec["volumes"] == [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
        {"name": "hugepages", "emptyDir": {"medium": "HugePages-2Mi"}},
    ]


def test_pods_that_run_together_have_a_number_and_find_the_first() -> None:
    service, job = made(indexed=True, parallelism=2, env={"NCCL_DEBUG": "INFO"})
    assert (job["spec"]["completionMode"], job["spec"]["completions"]) == ("Indexed", 2)
    assert pod_spec(job)["subdomain"] == service["metadata"]["name"] == "train"
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert pod_spec(job)["containers"][0]["env"] == [
        {"name": "MASTER_ADDR", "value": "train-0.train"},
        {"name": "MASTER_PORT", "value": "29500"},
        {"name": "NCCL_DEBUG", "value": "INFO"},
        {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": "WORLD_SIZE", "value": "2"},
    ]
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    # Pulumi's provider waits for endpoints otherwise, and there are none before a node is bought.
    assert service["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}


def test_pods_that_do_not_run_together_have_a_number_and_no_first() -> None:
    (job,) = made(indexed=True, parallelism=2, completions=8)
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (2, 8)
    names = [variable["name"] for variable in pod_spec(job)["containers"][0]["env"]]
    assert names == ["RANK", "WORLD_SIZE"]
    assert "subdomain" not in pod_spec(job)


def test_a_job_without_the_new_keys_keeps_its_template() -> None:
    """A Job with another template is replaced."""
    (job,) = made()
    always = {"parallelism", "completions", "template", "backoffLimit", "podFailurePolicy"}
    assert job["spec"].keys() == always
    assert pod_spec(job).keys().isdisjoint({"volumes", "subdomain"})
    assert pod_spec(job)["containers"][0].keys().isdisjoint({"env", "volumeMounts"})


@pytest.mark.parametrize("keys", [{}, {"indexed": True}, {"completions": 12}])
def test_a_reclaimed_node_is_no_failure_and_retries_grow_with_the_pods(keys: dict[str, Any]) -> None:
    spec = made(parallelism=4, **keys)[-1]["spec"]
    condition = {"type": "DisruptionTarget", "status": "True"}
    assert spec["podFailurePolicy"] == {"rules": [{"action": "Ignore", "onPodConditions": [condition]}]}
    assert spec["template"]["spec"]["restartPolicy"] == "Never", "a failure policy requires it"
    assert (spec["backoffLimit"], "backoffLimitPerIndex" in spec) == (24, False)


def test_a_paused_job_does_not_fail_by_pods_that_failed_before() -> None:
    spec = made(parallelism=0, completions=12)[-1]["spec"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (0, 12, 2**31 - 1)


KEPT = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


@pytest.mark.parametrize("kind", ["job", "pod", "notebook", "deployment"])
def test_autoscalers_keep_nodes_of_all_but_replicas(kind: str) -> None:
    notebook = {"editor": "vscode", "user": "ada"} if kind == "notebook" else {}
    assert placed(environment(kind=kind, **notebook)) == ({} if kind == "deployment" else KEPT)


@pytest.mark.parametrize("cluster", ["embedded", "existing"])
def test_existing_clusters_may_have_an_autoscaler_and_simulated_ones_have_none(cluster: str) -> None:
    keys = {"selector": {"a": "b"}} if cluster == "existing" else {"nodes": 1}
    pool = {"name": "p0", "machine": "g2.5xlarge", **keys}
    work = {"name": "train", "kind": "job", "pool": "p0", "image": "a:1"}
    assert placed(parse(declared(cluster, pool, workloads=[work]))) == (KEPT if cluster == "existing" else {})


def test_the_efa_of_every_further_card_is_its_device_0() -> None:
    """As AWS's page "Maximize network bandwidth on ... instances with multiple network cards" has it."""
    cards = karpenter.network_interfaces(environment().pools[0])
    assert len(cards) == 33
    assert [(card["networkCardIndex"], card["deviceIndex"], card["interfaceType"]) for card in cards[:4]] == [
        (0, 0, "interface"),
        (0, 1, "efa-only"),
        (1, 0, "efa-only"),
        (2, 0, "efa-only"),
    ]


@pytest.mark.parametrize(
    ("needs", "nodes"), [({}, 1), ({"efa": 16}, 2), ({"efa": 32}, 4), ({"hugepages": "4Gi"}, 2)]
)
def test_enough_nodes_are_simulated_for_its_adapters_and_huge_pages(
    needs: dict[str, Any], nodes: int
) -> None:
    names = [node["metadata"] for node in aws_nodes(environment(parallelism=4, **needs))]
    mine = [name for name in names if name["labels"][labels.POOL] == "p0"]
    assert len(mine) == nodes
    notes = mine[0]["annotations"]
    assert (notes[labels.SIM_EFA], notes[labels.SIM_HUGE_PAGES]) == ("32", "10240Mi")


def test_a_node_reserves_its_huge_pages_and_karpenter_knows() -> None:
    env = environment()
    (pool,) = env.pools
    assert "sysctl -w vm.nr_hugepages=5120\n" in user_data.render(env, pool)
    (overlay,) = karpenter.node_overlays(env, pool)
    assert overlay["spec"] == {
        "capacity": {"hugepages-2Mi": "10Gi"},
        "requirements": [
            {"key": "karpenter.sh/nodepool", "operator": "In", "values": sorted(pool.node_pools)}
        ],
    }
    assert eks.karpenter_values(env)["settings"]["featureGates"]["nodeOverlay"] is True


def test_bottlerocket_reserves_them_by_a_setting() -> None:
    env = environment({**H100, "aws": {"efa": True, "image": "bottlerocket-nvidia"}})
    assert '[settings.kernel.sysctl]\n"vm.nr_hugepages" = "5120"\n' in user_data.render(env, env.pools[0])


ZONE, RACK, HOST = "topology.kubernetes.io/zone", "example.com/rack", "kubernetes.io/hostname"
ANY = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
WHOLE = {"name": "whole", "machine": "p4de.24xlarge", "nodes": 4}
OTHER = {"name": "other", "machine": "g4.p4.40g", "nodes": 2}
SHARES = {"name": "shares", "machine": "g2.5xlarge", "nodes": 1, "sharing": {"kind": "mps", "replicas": 4}}
GANG = {"gang": True, "indexed": True, "parallelism": 4, "count": 8, "pool": "whole"}


def mapping(
    *works: dict[str, Any], topology: dict[str, list[str]], pools: Any = (WHOLE, OTHER, SHARES)
) -> Any:
    team = {"name": "a", "namespaces": ["a"], "quota": {"whole": 32, "other": 8, "shares": 4}}
    common = {"namespace": "a", "kind": "job", "queue": "a"}
    queues = {"teams": [team], "topology": topology}
    return declared("embedded", *pools, queues=queues, workloads=[{**common, **work} for work in works])


def of_kind(env: Environment, kind: str) -> list[dict[str, Any]]:
    return [manifest for manifest in queues.manifests(env) if manifest["kind"] == kind]


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
        item["metadata"]["name"]: item["spec"].get("topologyName") for item in of_kind(env, "ResourceFlavor")
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
        (name,) = [item["metadata"]["name"] for item in of_kind(env, "Topology")]
        return str(name)

    assert len({flavor([]), flavor([], ZONE), flavor([], RACK, ZONE), flavor([{"key": "a"}])}) == 4
    assert flavor([]) == flavor([])


@pytest.mark.parametrize("kind", ["job", "deployment", "pod", "notebook"])
def test_in_a_queue_of_both_kinds_of_pool_every_workload_says_where_it_may_run(kind: str) -> None:
    editor = {"editor": "vscode"} if kind == "notebook" else {}
    works = [
        {"kind": kind, "pool": pool, **editor, **({"user": pool} if editor else {})}
        for pool in ("whole", "other", "shares")
    ]
    env = parse(mapping(*works, topology={"whole": []}))
    assert [placed(env, at) for at in range(3)] == [ANY, {}, {}]


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
    text = message({**env, "queues": {"teams": [team], "topology": {"p0": []}}})
    assert text == f"queues.topology.p0: {fact}; leave it out, or give the pool nodes: N"
