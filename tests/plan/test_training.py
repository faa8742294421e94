"""What training declares: adapters, huge pages, /dev/shm, and numbered pods that find each other."""

from __future__ import annotations

from typing import Any

import pytest

from infra.model import labels
from infra.model.environment import Environment
from infra.plan import eks, node_class, overlays, played_nodes, user_data, workloads
from tests.plan.aws_environments import aws

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


def pod_spec(found: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = found["spec"]
    return spec if found["kind"] == "Pod" else spec["template"]["spec"]


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
    names = [one["name"] for one in pod_spec(job)["containers"][0]["env"]]
    assert names == ["RANK", "WORLD_SIZE"]
    assert "subdomain" not in pod_spec(job)


def test_a_job_without_the_new_keys_keeps_its_template() -> None:
    """A Job with another template is replaced."""
    (job,) = made()
    assert job["spec"].keys() == {"parallelism", "completions", "template"}
    assert pod_spec(job).keys().isdisjoint({"volumes", "subdomain"})
    assert pod_spec(job)["containers"][0].keys().isdisjoint({"env", "volumeMounts"})


def test_the_efa_of_every_further_card_is_its_device_0() -> None:
    """As AWS's page "Maximize network bandwidth on ... instances with multiple network cards" has it."""
    cards = node_class.network_interfaces(environment().pools[0])
    assert len(cards) == 33
    assert [(one["networkCardIndex"], one["deviceIndex"], one["interfaceType"]) for one in cards[:4]] == [
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
    names = [one["metadata"] for one in played_nodes.manifests(environment(parallelism=4, **needs))]
    mine = [one for one in names if one["labels"][labels.POOL] == "p0"]
    assert len(mine) == nodes
    notes = mine[0]["annotations"]
    assert (notes[labels.SIM_EFA], notes[labels.SIM_HUGE_PAGES]) == ("32", "10240Mi")


def test_a_node_reserves_its_huge_pages_and_karpenter_knows() -> None:
    env = environment()
    (pool,) = env.pools
    assert "sysctl -w vm.nr_hugepages=5120\n" in user_data.of(env, pool)
    (overlay,) = overlays.node_overlays(env, pool)
    assert overlay["spec"] == {
        "capacity": {"hugepages-2Mi": "10Gi"},
        "requirements": [
            {"key": "karpenter.sh/nodepool", "operator": "In", "values": sorted(pool.node_pools)}
        ],
    }
    assert eks.karpenter_values(env)["settings"]["featureGates"]["nodeOverlay"] is True


def test_bottlerocket_reserves_them_by_a_setting() -> None:
    env = environment({**H100, "aws": {"efa": True, "image": "bottlerocket-nvidia"}})
    assert '[settings.kernel.sysctl]\n"vm.nr_hugepages" = "5120"\n' in user_data.of(env, env.pools[0])
