"""NVIDIA's own operator and NFD in place of the simulated ones: the same clusters, and what only they do.

The differences that are left, each with its reason: operator_differences.yaml.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.journey.conftest import HERE, Checkout, close, make_checkout
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

_KNOWN = yaml.safe_load(Path(__file__).with_name("operator_differences.yaml").read_text())
_OWN = ("simulator.gpuform.io/", "kwok.x-k8s.io/", "gpuform.io/")
_OF_ONE_CLUSTER = (
    "nvidia.com/gfd.timestamp",
    "karpenter.k8s.aws/instance-profile-name",
    "karpenter.k8s.aws/ec2nodeclass-hash",
)
"""Values that time or the cluster's own address changes."""
UPGRADE = "nvidia.com/gpu-driver-upgrade-state"


class Both(NamedTuple):
    real: Checkout
    simulated: Checkout

    def up(self, *options: str) -> None:
        for checkout in self:
            checkout.gpuform("local", "up", *options)

    def change(self, edit: Any) -> None:
        for checkout in self:
            checkout.change(edit)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    made = Both(*(make_checkout(tmp_path_factory.mktemp(kind)) for kind in Both._fields))
    try:
        for kind, checkout in zip(Both._fields, made, strict=True):
            checkout.gpuform("local", "up", "--operator", kind)
        yield made
    finally:
        for checkout in made:
            close(checkout)


def items(checkout: Checkout, *what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(checkout.kubectl("get", *what, "-o", "json"))["items"]
    return found


def of_nodes(nodes: Iterable[dict[str, Any]]) -> Iterator[str]:
    for node in nodes:
        meta, name = node["metadata"], f"node {node['metadata']['name']}"
        for kind in ("label", "annotation"):
            for key, value in meta.get(f"{kind}s", {}).items():
                if not key.startswith(_OWN) and key not in _OF_ONE_CLUSTER:
                    yield f"{name} {kind} {key}={value}"
        for taint in node["spec"].get("taints", ()):
            yield f"{name} taint {taint['key']}={taint.get('value')}:{taint['effect']}"
        yield f"{name} accepts pods {not node['spec'].get('unschedulable')}"
        for key, amount in node["status"]["allocatable"].items():
            yield f"{name} offers {key} {amount}"


def of_operands(checkout: Checkout) -> Iterator[str]:
    for one in items(checkout, "daemonsets", "-n", "gpu-operator"):
        name, spec = f"daemonset {one['metadata']['name']}", one["spec"]["template"]["spec"]
        status = one["status"]
        yield f"{name} has pods {status['desiredNumberScheduled']}, ready {status['numberReady']}"
        yield f"{name} update={one['spec']['updateStrategy']['type']}"
        yield f"{name} runs as {spec.get('runtimeClassName')}, {spec.get('priorityClassName')}"
        yield from (f"{name} selects {key}={value}" for key, value in spec.get("nodeSelector", {}).items())
        yield from (f"{name} tolerates {item}" for item in map(str, spec.get("tolerations", ())))
        for container in [*spec.get("initContainers", ()), *spec["containers"]]:
            inner = f"{name} container {container['name']}"
            yield inner
            yield from (
                f"{inner} env {item['name']}={item.get('value')}" for item in container.get("env", ())
            )
    for kind in ("configmap", "service", "servicemonitor", "deployment"):
        yield from (
            f"{kind} {item['metadata']['name']}" for item in items(checkout, kind, "-n", "gpu-operator")
        )
    yield from (f"runtimeclass {item['metadata']['name']}" for item in items(checkout, "runtimeclass"))


def differences(both: Both) -> set[str]:
    """Lines of one cluster alone, without variables that the simulated operands do not have."""
    real, simulated = ({*of_nodes(items(checkout, "nodes")), *of_operands(checkout)} for checkout in both)
    read = {line.partition("=")[0] for line in simulated if " env " in line}
    return {line for line in real ^ simulated if " env " not in line or line.partition("=")[0] in read}


def unknown(lines: set[str]) -> set[str]:
    return {line for line in lines if not any(re.fullmatch(item["pattern"], line) for item in _KNOWN)}


def same(both: Both) -> None:
    """Operands act a moment after an update has ended."""
    assert until(lambda: unknown(differences(both)), lambda left: not left, 30) == set()


def drivers(checkout: Checkout) -> set[str]:
    """Revisions of the driver's DaemonSet on the nodes; empty while a driver upgrade is under way."""
    nodes = [node for node in items(checkout, "nodes") if UPGRADE in node["metadata"]["labels"]]
    pods = items(checkout, "pods", "-n", "gpu-operator", "-l", "app=nvidia-driver-daemonset")
    done = all(node["metadata"]["labels"][UPGRADE] == "upgrade-done" for node in nodes)
    return {pod["metadata"]["labels"]["controller-revision-hash"] for pod in pods} if done else set()


def test_the_clusters_are_the_same_and_nothing_is_left_to_do(both: Both) -> None:
    same(both)
    lines = differences(both)
    assert "41 unchanged" in both.real.gpuform("local", "up").stdout
    shown = re.search(r"NVIDIA's GPU operator (\S+)", both.real.gpuform("status").stdout)
    assert shown
    known = [item["pattern"] for item in _KNOWN if item.get("only", shown[1]) == shown[1]]
    unused = [pattern for pattern in known if not any(re.fullmatch(pattern, line) for line in lines)]
    assert unused == [], "differences that are none any more"


def test_a_change_of_sharing_and_of_a_layout(both: Both) -> None:
    """The release is done before the operator has replaced the MIG manager, which has the old layouts."""

    def edit(environment: dict[str, Any]) -> None:
        shared, _, cut = environment["pools"][:3]
        shared["sharing"]["replicas"], cut["sharing"]["layout"] = 5, {"2g.10gb": 3}

    both.change(edit)
    both.up()
    same(both)
    offered = both.real.offers()
    assert offered["t4-shared"] == [{"nvidia.com/gpu.shared": 5}] * 2
    assert offered["a100-7"] == [{"nvidia.com/mig-2g.10gb": 3}]


@pytest.mark.parametrize(
    ("break_it", "repair_it"),
    [(("health",), ("health", "--ok")), (("fault", "--gpu-lost"), ("fault", "--clear"))],
    ids=["unhealthy", "lost"],
)
def test_a_node_offers_one_gpu_less_while_it_is_broken(
    both: Both, break_it: tuple[str, ...], repair_it: tuple[str, ...]
) -> None:
    for (command, *options), left in ((break_it, 3), (repair_it, 4)):
        for checkout in both:
            checkout.gpuform("simulate", command, "a100-whole-0", "--gpu", "2", *options)
        for checkout in both:
            until(checkout.offers, lambda pools: pools["a100-whole"] == [{"nvidia.com/gpu": left}], 30)  # noqa: B023
        same(both)


def test_a_new_driver_evicts_pods_and_leaves_nothing_cordoned(both: Both) -> None:
    """All nodes at once: from 26.7 on, the operator looks every two minutes whether a driver has come."""
    (before,) = until(lambda: drivers(both.real), lambda found: len(found) == 1, 60)
    upgrade = {"max_parallel": 7, "max_unavailable": "100%"}
    given = {"driver_version": "580.159.03", "upgrade": upgrade}
    both.change(lambda environment: environment["gpu_operator"].update(given))
    shown = " ".join(both.real.gpuform("preview", "local").stdout.split())
    assert "examples/Pod/pod-a100 (not recreated)" in shown
    both.up()
    until(lambda: drivers(both.real), lambda found: len(found) == 1 and before not in found, 360)
    both.up("--refresh")  # bare pods are gone for good, in one cluster
    same(both)
    assert [pod["phase"] for pod in both.real.status()["pods"] if pod["namespace"] == "examples"] == [
        "Running"
    ] * 3


def test_one_cannot_replace_the_other_and_is_destroyed(both: Both) -> None:
    refused = both.real.gpuform("local", "up", "--operator", "simulated", code=2)
    assert "--operator: " in refused.stderr
    assert "gpuform local stop local --delete" in refused.stderr
    both.real.gpuform("destroy", "local", "--yes")
    both.real.gpuform("local", "up", "--operator", "simulated")


RECORDED = """
import json, pathlib
from gpuform.cli.main import main
from lab.rehearse.cluster import NODES, Cluster

read = Cluster.items

def recorded(self, path, name=""):
    found = read(self, path, name)
    if path == NODES and found:
        pathlib.Path("nodes.json").write_text(json.dumps(found))
    return found

Cluster.items = recorded
main()
"""
"""Writes down the nodes that a rehearsal read last: its cluster is gone at its end."""


class Rehearsed(Checkout):
    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-c", RECORDED, *args]


def of_a_rehearsal(folder: Path) -> set[str]:
    """What the nodes of each pool have; names are drawn."""
    found = set()
    for node in json.loads((folder / "nodes.json").read_text()):
        name, pool = node["metadata"]["name"], node["metadata"]["labels"].get("gpuform.io/pool", "none")
        found |= {line.replace(name, pool) for line in of_nodes([node])}
    return found


def without_zones(found: Any) -> Any:
    """The simulated AWS offers a machine in each zone for the same price; Karpenter takes any."""
    return json.loads(re.sub(r"\b(us-east-1|use1-az)\w\b", r"\1", json.dumps(found)))


def machines_of(pool: dict[str, Any]) -> dict[str, Any]:
    """The pool with its nodes counted by machine, capacity and price, whichever the zone."""
    counted: Counter[str] = Counter()
    for row in pool["machines"]:
        counted[str([row["machine"], row["capacity"], row["usd_per_hour"]])] += row["count"]
    return {**pool, "machines": counted}


@pytest.mark.parametrize("stack", ["aws-dev", "onprem-dev", "openstack-dev"])
def test_a_rehearsal_buys_the_same_nodes(stack: str, tmp_path: Path) -> None:
    checkout = Rehearsed(make_checkout(tmp_path).paths)
    for file in (f"Pulumi.{stack}.yaml", "ansible"):
        (checkout.paths.root / file).symlink_to(HERE.root / file)
    pools, nodes = {}, {}
    for kind in Both._fields:
        outcome = json.loads(
            checkout.gpuform("rehearse", stack, "--no-shrink", "--json", "--operator", kind).stdout
        )
        pools[kind] = without_zones([machines_of(pool) for pool in outcome["pools"]])
        nodes[kind] = set(without_zones([*of_a_rehearsal(checkout.paths.root)]))
        assert any("NVIDIA's GPU operator" in line for line in outcome["real"]) == (kind == "real")
    assert pools["real"] == pools["simulated"]
    assert unknown(nodes["real"] ^ nodes["simulated"]) == set()
