"""Requests that a rehearsal plays: which counter, who reports it, and what is refused."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.usage.nodes import Pod, parse_node
from gpuform.usage.rehearsal import Load, PendingPod
from infra.config import load
from infra.model.environment import Environment
from lab.rehearse import scaled
from lab.rehearse.exporter import GATEWAY, Key, RequestCounters, Series, serve
from lab.rehearse.loads import LoadPlayer, unmet, workload_result
from lab.rehearse.scaled import ScaledWorkload
from lab.rehearse.watch import NodeLifetime
from tests.build.environments import on
from tests.lab.rehearse.fake_cluster import FakeCluster

pytestmark = pytest.mark.unit
GATEWAY_QUERY = 'sum( rate(hits{ingress="w", code="200"}[5m]) ) or vector(0)'
OWN = 'sum(rate(vllm:request_success_total{job="default/w"}[1m]))'


def env(update: Any = None, **scale: Any) -> Environment:
    scaling = {"min": 1, "max": 8, "qps_per_replica": 50, **scale}
    work = {"name": "w", "kind": "inference", "namespace": "default", "scale": scaling, **(update or {})}
    return on("embedded", {"machine": "m6i.4xlarge"}, monitoring={}, workloads=[work])


def one(env: Environment) -> ScaledWorkload:
    (found,) = scaled.scaled_workloads(env)
    return found


def test_loads_are_read_as_they_are_written() -> None:
    assert scaled.parse_qps("0, 50,4e2,0.5") == (0, 50, 400, 0.5)


@pytest.mark.parametrize("text", ["", "a", "50,", "-1", "nan", "1,inf", "2e6", ",".join(["1"] * 21)])
def test_other_texts_are_no_loads(text: str) -> None:
    remedies = "as in 0,50,400, each from 0 to 1000000|give 20 or fewer"
    with pytest.raises(InputError, match=rf"^--qps.*; ({remedies})"):
        scaled.parse_qps(text)


@pytest.mark.parametrize(
    ("qps", "pods"), [(0, 1), (50, 1), (50.1, 2), (400, 8), (401, 8), (0.3 / 0.1 * 50, 3)]
)
def test_the_pods_are_as_many_as_declared_for_a_load(qps: float, pods: int) -> None:
    assert one(env()).replicas_for(qps) == pods
    (work,) = scaled.at_load(env(), qps, (one(env()),)).workloads
    assert work.pods == pods


@pytest.mark.parametrize(
    ("query", "series"),
    [
        (None, Series("nv_inference_request_success", {}, by_pods=True)),
        (GATEWAY_QUERY, Series("hits", {"ingress": "w", "code": "200"}, by_pods=False)),
        (OWN, Series("vllm:request_success_total", {}, by_pods=True)),
        ("sum(rate(hits[1m]))", Series("hits", {}, by_pods=False)),
    ],
)
def test_the_counter_is_that_of_the_query(query: str | None, series: Series) -> None:
    assert one(env({"metrics": {"port": 8000}} if query == OWN else None, query=query)).series == series


@pytest.mark.parametrize(
    "query", ["sum(hits)", "sum(rate(a[1m]))/2", 'sum(rate(a{b=~"c"}[1m]))', "vector(9)"]
)
def test_another_query_cannot_be_played(query: str) -> None:
    message = r"^workloads\[0\].scale.query: is not sum\(rate\(.*; leave --qps out"
    with pytest.raises(InputError, match=message):
        scaled.scaled_workloads(env(query=query))


def test_node_groups_follow_no_load() -> None:
    cern = load(Paths.here().root / "Pulumi.openstack-dev.yaml")
    grouped = env().model_copy(update={"cluster": cern.cluster, "pools": cern.pools})
    with pytest.raises(InputError, match=r"^--qps: cluster-autoscaler does not run in a rehearsal"):
        scaled.scaled_workloads(grouped)


def test_pods_share_the_requests_and_without_one_none_is_counted() -> None:
    a, b, now = ("s", "a"), ("s", "b"), 100.0
    pods: dict[Key, Key] = {}
    work = {("s", "w"): Series("n", {}, True), ("s", "g"): Series("h", {"x": "y"}, False)}
    played = RequestCounters(work, lambda: pods, lambda: now)
    played.play(40)
    now = 110.0
    assert played.answer("pods", a) is None
    assert played.answer("services", GATEWAY) == 'h{x="y"} 400.000000 110000\n'
    pods |= {a: ("s", "w"), ("s", "other"): ("s", "other")}
    now = 111.0
    assert played.answer("pods", a) == "n{} 40.000000 111000\n"
    pods[b] = ("s", "w")
    now = 113.0
    answers = [played.answer("pods", item) for item in (a, b)]
    assert answers == ["n{} 80.000000 113000\n", "n{} 40.000000 113000\n"]
    assert played.answer("pods", ("s", "other")) is played.answer("services", a) is None
    with serve(played) as port:
        where = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{where}/services/{'/'.join(GATEWAY)}") as answer:
            assert answer.read() == b'h{x="y"} 520.000000 113000\n'
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{where}/pods/s/none")


def test_pods_start_before_anything_scales_them() -> None:
    declared = env(min=0, query=GATEWAY_QUERY, cooldown_seconds=300)
    work = (one(declared),)
    made = {manifest["kind"]: manifest for manifest in scaled.manifests(declared, work, 4711)}
    assert "ScaledObject" not in made
    assert made["Deployment"]["spec"]["replicas"] == 1 == scaled.at_minimum(declared).workloads[0].pods
    noted = made["Service"]["metadata"], made["Deployment"]["spec"]["template"]["metadata"]
    assert [item["annotations"]["simulator.gpuform.io/metrics-port"] for item in noted] == ["4711"] * 2
    own = scaled.manifests(env(), (one(env()),), 1)
    assert not any(manifest["kind"] == "Endpoints" for manifest in own)
    (scales,) = scaled.scaled_objects(declared, work)
    assert scales["spec"]["cooldownPeriod"] == 10
    assert scales["spec"]["triggers"][0]["metadata"]["query"] == GATEWAY_QUERY
    assert list(scaled.deviations(declared, work)) == [
        "w's cooldown is 10 s instead of 300 s",
        "Prometheus scrapes every 5s instead of 15s",
    ]


def test_fewer_pods_than_a_step_of_an_update_are_no_error() -> None:
    assert scaled.at_minimum(env({"update": {"kind": "rolling", "step": 4}})).workloads[0].pods == 1


@pytest.mark.parametrize(
    ("qps", "running", "pending", "within", "missing"),
    [
        (105, 1, 0, True, ""),  # the autoscaler leaves it: no pod is missing
        (150, 1, 0, False, "150 requests per second: default/w has 1 of 3 pods: why"),
        (150, 2, 1, False, "150 requests per second: default/w has 2 of 3 pods: why"),
        (55, 1, 1, False, "55 requests per second: default/w has 1 of 2 pods: why"),
        (150, 3, 0, True, ""),
        (0, 1, 0, False, ""),
    ],
)
def test_missing_pods_fail_the_rehearsal_unless_the_autoscaler_tolerates_it(
    qps: float, running: int, pending: int, within: bool, missing: str
) -> None:
    work = one(env())
    if qps == 105:
        work = replace(work, scale=work.scale.model_copy(update={"qps_per_replica": 100.0}))
    phases = ["Running"] * running + ["Pending"] * pending
    own = [Pod("default", f"w-{n}", "w", "n", phase, {}) for n, phase in enumerate(phases)]
    waits = [PendingPod("default", name, name, "", {}, why, ()) for name, why in (("w", "why"), ("x", "no"))]
    result = workload_result(work, qps, own, waits, {})
    assert result.within is within
    assert list(unmet([Load(qps, 9.0, (result,), 1, {}, {}, None)])) == ([missing] if missing else [])


@pytest.mark.parametrize(("ready", "shown"), [(4.0, 4.0), (None, 5.0)])
def test_a_node_is_ready_at_the_latest_when_a_pod_runs_there(ready: float | None, shown: float) -> None:
    """Nodes are read before pods, so it may look unready when its pod is seen."""
    watch: Any = SimpleNamespace(
        lives={"n": NodeLifetime(parse_node({"metadata": {"name": "n"}}), 3.0, ready)}
    )
    rest: Any = [None] * 3
    player = LoadPlayer(env(), (), rest[0], FakeCluster(), watch, *rest, ())
    assert player.launch_steps("n", 1.0, 5.0) == {"node joined": 3.0, "node ready": shown}
