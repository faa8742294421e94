"""What of a node is left for workloads; simulated nodes and charts take as much of it as real ones."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import load, parse
from infra.model.base import labels
from infra.model.base.errors import InputError
from infra.model.base.quantities import cpu_millis, memory_bytes
from infra.model.checks.environment import warnings
from infra.model.environment import Environment
from infra.model.gpu.machines import MACHINES
from infra.model.placement.node_resources import NodeResources, allocatable, daemon_sets, free_resources
from infra.plan import device_plugin, dra, gpu_operator, monitoring, nodes, sharing
from infra.strict_yaml import load_all
from lab.rehearse.nodes import simulated_nodes
from lab.toolchain import Toolchain
from tests.build.aws_environments import aws
from tests.build.environments import on
from tests.build.openstack_stacks import capi
from tests.external import reference

ROOT = Path(__file__).parents[2]
T4 = {"machine": "g4dn.xlarge"}
BOTTLE = {"image": "bottlerocket-nvidia", "max_pods": 110}


@pytest.mark.unit
def test_the_kubelet_leaves_what_karpenter_publishes_for_each_type() -> None:
    for row in csv.DictReader(reference("ec2/gpu-instance-types.csv").open()):
        if machine := MACHINES.get(row["instance_type"]):
            found = allocatable(machine, machine.pods)
            assert abs(found.cpu - cpu_millis(row["alloc_cpu"])) <= 1, machine.name
            assert (f"{found.memory}Mi", str(found.pods)) == (row["alloc_memory"], row["alloc_pods"])


@pytest.mark.unit
@pytest.mark.parametrize(
    ("env", "expected"),
    [
        # 4 cores: 80m reserved, 195m requested. 16 GiB: 7.5 % and 255 + 11 * 29 + 100 MiB, 214 MiB.
        (aws(T4), NodeResources(3725, 14267, 29 - 10)),
        (aws({**T4, "aws": {"max_pods": 110}}), NodeResources(3725, 14267, 110 - 10)),
        (aws({**T4, "aws": BOTTLE}), NodeResources(3725, 14267 - 11 * (110 - 29), 110 - 9)),
        (aws({**T4, "nodes": 1}), NodeResources(3725, 14267 + 1229, 29 - 10)),
        (capi({"nodes": 1}), NodeResources(28000 - 5, 168 * 1024 - 64, 110 - 7)),
    ],
    ids=["elastic", "more pods", "bottlerocket reserves for more pods", "node group", "openstack"],
)
def test_room_is_the_machine_less_kubelet_and_daemon_sets(env: Environment, expected: NodeResources) -> None:
    machine = env.pools[0].flavor
    assert machine
    assert free_resources(env, env.pools[0], machine) == expected


def work(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "w", "kind": "pod", "pool": "p0", "image": "x:1", **more}]


@pytest.mark.unit
def test_what_the_remedy_of_a_refusal_names_is_accepted() -> None:
    for asked in ({"cpu": 3.8}, {"memory": "15Gi"}):
        with pytest.raises(InputError) as caught:
            aws(T4, workloads=work(**asked))
        most = caught.value.remedy.split()[1]
        aws(T4, workloads=work(**dict.fromkeys(asked, most)))


@pytest.mark.unit
def test_of_the_gpus_that_a_pod_requests_the_same_machine_must_have_room() -> None:
    pool = {"gpu": {"models": ["T4"], "count": [1, 4]}}
    aws(pool, workloads=work(cpu=60))  # g4dn.16xlarge, with one GPU
    with pytest.raises(InputError, match=r"has 47\.615 cores for it: 48 of g4dn\.12xlarge"):
        aws(pool, workloads=work(cpu=60, count=4))


@pytest.mark.unit
def test_a_size_that_is_not_declared_refuses_nothing() -> None:
    pool = {"name": "p0", "gpu": {"models": ["T4"], "count": 1}, "selector": {"role": "gpu"}}
    cluster = {"kind": "existing", "kubeconfig": "~/.kube/config"}
    parse({"name": "lab", "cluster": cluster, "pools": [pool], "workloads": work(cpu=900)})


@pytest.mark.unit
def test_more_shares_than_pods_get_a_warning() -> None:
    sharing = {"kind": "time_slicing", "replicas": 20}
    expected = (
        "pools[0].sharing: a node of g4dn.xlarge offers 20, and has room for 19 pods beside 10 DaemonSets"
    )
    limit = {"elastic": {"max": {"cpu": 40}}}
    assert warnings(aws({**T4, **limit, "sharing": sharing})) == (
        f"{expected}; offer fewer, or raise aws.max_pods",
    )
    assert warnings(aws({**T4, **limit, "sharing": sharing, "aws": {"max_pods": 110}})) == ()


STACKS = ("local", "aws-dev", "aws-prod", "openstack-dev")
ENVIRONMENTS = {
    **{stack: load(ROOT / f"Pulumi.{stack}.yaml") for stack in STACKS},
    "bottlerocket": aws({**T4, "aws": BOTTLE}),
    "claims": aws({"machine": "p4d.24xlarge", "nodes": 1, "sharing": {"kind": "dra"}}),
    "alone": on(
        *("existing", {**T4, "sharing": {"kind": "mps", "replicas": 2}}),
        gpu_operator={"mode": "device_plugin"},
        monitoring={},
    ),
}
SIMULATED = {
    "gpu-operator": "gpu-operator-sim",
    "nvidia-device-plugin": "device-plugin-sim",
    "aws-efa-k8s-device-plugin": "efa-device-plugin-sim",
}


@pytest.mark.tools
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_rehearsed_node_has_the_daemon_sets_that_its_room_counts(name: str, toolchain: Toolchain) -> None:
    env = ENVIRONMENTS[name]
    alone = env.gpu_operator.mode == "device_plugin"
    releases = [device_plugin.release(env) if alone else gpu_operator.release(env)]
    others = (monitoring.release(env), dra.release(env))
    others += device_plugin.exporter_release(env), device_plugin.efa_release(env)
    releases += filter(None, others)
    made = [item for item in simulated_nodes(env).rehearsed(env).manifests if item["kind"] == "DaemonSet"]
    for release in releases:
        chart = release.chart.rpartition("/")[2].removesuffix("-sim")
        folder = ROOT / "charts" / SIMULATED.get(chart, f"{chart.replace('-nvidia-gpu', '')}-sim")
        command = [str(toolchain.path("helm")), "template", release.name, str(folder), "-f", "-"]
        text = json.dumps(release.values)
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=True)
        made += [entry for entry in load_all(done.stdout) if entry and entry["kind"] == "DaemonSet"]
    assert any(pool.gpus for pool in env.pools)
    for pool in env.pools:
        there = [one["spec"]["template"]["spec"] for one in made if runs_on(env, pool, one)]
        asked = [
            container["resources"].get("requests", {})
            for pod in there
            for container in pod["containers"]
            if "resources" in container
        ]
        found = (
            len(there),
            sum(cpu_millis(one.get("cpu", "0")) for one in asked),
            sum(memory_bytes(one.get("memory", "0Mi")) for one in asked) // 2**20,
        )
        counted = list(daemon_sets(env, pool))
        assert found == (len(counted), sum(one.cpu for one in counted), sum(one.memory for one in counted)), (
            pool.name
        )


def runs_on(env: Environment, pool: Any, daemon_set: dict[str, Any]) -> bool:
    """Whether a node of the pool has a pod of it, once the operator and discovery have labelled the node."""
    pod = daemon_set["spec"]["template"]["spec"]
    machine = pool.machines[0] if pool.machines else pool.node_machine
    has = {**sharing.pool_labels(env, pool), labels.INSTANCE_TYPE: machine.name, labels.OS: "linux"}
    if pool.gpus:
        has[labels.PCI_PRESENT] = "true"
        names = ("container-toolkit", "dcgm-exporter", "device-plugin", "driver")
        names += ("gpu-feature-discovery", "operator-validator")
        has = {**{f"nvidia.com/gpu.deploy.{item}": "true" for item in names}, **has}
        has["nvidia.com/mps.capable"] = str(pool.sharing.kind == "mps").lower()
        if any(gpu.mig_capable for gpu in pool.gpus):
            has |= {"nvidia.com/gpu.deploy.mig-manager": "true", labels.MIG_CONFIG_STATE: "success"}
    required = pod.get("affinity", {}).get("nodeAffinity", {})
    required = required.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms", [{"matchExpressions": []}])
    return (
        all(has.get(key) == value for key, value in pod.get("nodeSelector", {}).items())
        and any(all(expression_matches(has, entry) for entry in term["matchExpressions"]) for term in terms)
        and all(is_tolerated(taint, pod.get("tolerations", ())) for taint in sharing.pool_taints(env, pool))
    )


def expression_matches(has: dict[str, str], asked: dict[str, Any]) -> bool:
    return (has.get(asked["key"]) in asked["values"]) == (asked["operator"] == "In")


def is_tolerated(taint: dict[str, str], tolerations: Sequence[dict[str, str]]) -> bool:
    return taint["effect"] == "PreferNoSchedule" or any(
        item.get("key") in (None, taint["key"]) and item.get("effect") in (None, taint["effect"])
        for item in tolerations
    )


@pytest.mark.unit
def test_fixed_nodes_of_aws_offer_what_their_kubelet_leaves() -> None:
    env = aws({**T4, "nodes": 1, "aws": {"max_pods": 20}})
    node = nodes.aws_nodes(env)[-1]
    has = [
        node["metadata"]["annotations"][key] for key in (labels.SIM_CPU, labels.SIM_MEMORY, labels.SIM_PODS)
    ]
    assert has == ["3920m", "14481Mi", "20"]


CHARTS = {
    "dcgm-exporter": ("resources", {"cpu": "100m", "memory": "128Mi"}),
    "aws-efa-k8s-device-plugin": ("resources", {"cpu": "10m", "memory": "20Mi"}),
    "nvidia-device-plugin": ("resources", None),
    "gpu-operator": ("devicePlugin.resources", None),
}


@pytest.mark.unit
@pytest.mark.parametrize("chart", CHARTS)
def test_requests_are_those_of_the_charts(chart: str) -> None:
    path, requests = CHARTS[chart]
    found = yaml.safe_load(reference(f"charts/{chart}/values.yaml").read_text())
    for key in path.split("."):
        found = found[key]
    assert found.get("requests") == requests
