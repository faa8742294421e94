"""The planned values, queues and workloads on the real Kueue: what is admitted, where, and what waits."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.plan import queues as planned
from infra.plan import quotas, workloads
from tests.build.environments import on
from tests.lab.sidecars.controllers.conftest import Queues
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

SHARES = {"kind": "time_slicing", "replicas": 4}
SEVEN = {"kind": "mig", "layout": {"1g.5gb": 7}}
ZONE = "topology.kubernetes.io/zone"
TEAM = {"cohort": "lab", "preempt": {"within": "lower_priority", "reclaim": "any"}}


def work(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": "science", "kind": kind, "queue": "science", **more}


ARTS = {"namespace": "arts", "queue": "arts"}
RANKS = {"pool": "ranks", "count": 8, "parallelism": 4, "command": ["sleep", "inf"]}
GANG = {**work("", "job", indexed=True, gang=True, **RANKS), **ARTS}
ENV = on(
    "embedded",
    {"name": "t4", "machine": "g2.5xlarge", "nodes": 2, "sharing": SHARES},
    {"name": "some", "machine": "g4.p4.40g", "sharing": {**SEVEN, "devices": [0]}},
    {"name": "whole", "machine": "g4.p4.40g", "taints": [{"key": "a", "value": "b"}]},
    {"name": "claimed", "machine": "g4.p1.40g", "nodes": 2, "sharing": {"kind": "dra"}},
    {"name": "ranks", "machine": "p4de.24xlarge", "nodes": 4},
    priorities={"high": 1000},
    queues={
        "fair_sharing": True,
        "cohorts": [{"name": "lab"}],
        "topology": {"ranks": [ZONE]},
        "teams": [
            {"name": "science", "namespaces": ["science"], **TEAM, "weight": 2, "borrow": {"t4": 2},
             "quota": {"t4": 4, "some": {"1g.5gb": 7, "gpu": 0}, "whole": 4, "claimed": 1}},
            {"name": "arts", "namespaces": ["arts"], "order": "strict", **TEAM,
             "quota": {"t4": 4, "ranks": 32}},
        ],
    },
    workloads=[
        work("borrows", "job", pool="t4", parallelism=6),
        work("waits", "job", pool="t4"),
        work("claims", "job", pool="claimed"),
        work("slice", "pod", pool="some", slice="1g.5gb"),
        work("any", "job", gpu={"memory_gib": 39}, count=3),
        work("pinned", "pod", gpu_product="NVIDIA-A100-PCIE-40GB"),
        work("served", "deployment", pool="some", slice="1g.5gb", replicas=2, service={"port": 80}),
        work("free", "pod", pool="t4") | {"namespace": "other", "queue": None},
        {**work("mine", "job", pool="t4", priority="high"), **ARTS},
        {**GANG, "name": "gang", "topology": {"preferred": ZONE}},
        {**GANG, "name": "close", "topology": {"required": ZONE}},
    ],
)  # fmt: skip


def admitted(queues: Queues, name: str, team: str) -> bool:
    result = (queues.workload(name, team).get("status") or {}).get("conditions", [])
    return any(item["type"] == "Admitted" and item["status"] == "True" for item in result)


def served(queues: Queues) -> list[dict[str, Any]]:
    return queues.items("pods", "science", "-l", "app.kubernetes.io/name=served")


def gated(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


@pytest.fixture(scope="module")
def site(queues: Queues, tmp_path_factory: pytest.TempPathFactory) -> Queues:
    release = planned.release(ENV)
    assert release is not None
    values = tmp_path_factory.mktemp("values") / "values.yaml"
    values.write_text(yaml.safe_dump(release.values))
    for manifest in (*quotas.namespaces(ENV), *quotas.priority_classes(ENV)):
        queues.apply(manifest)
    queues.install("-f", str(values))
    for manifest in planned.manifests(ENV):
        queues.apply(manifest)
    return queues


def declare(queues: Queues, name: str) -> None:
    one = next(workload for workload in ENV.workloads if workload.name == name)
    for manifest in workloads.objects(ENV, one):
        queues.apply(manifest)


def test_planned_queues_admit_what_was_planned(site: Queues) -> None:
    queues = site
    for workload in ENV.workloads:
        if workload.name == "waits":
            until(lambda: admitted(queues, "borrows", "science"), bool)
        if workload.namespace != "arts":
            declare(queues, workload.name)
    for name in ("claims", "borrows", "any", "slice", "pinned"):
        until(
            lambda n=name: admitted(queues, n, "science"), bool, what=lambda n=name: queues.why(n, "science")
        )
    until(lambda: queues.workload("waits", "science").get("status"), bool)
    queues.waits("waits", "science", lambda message: "nvidia.com/gpu.shared in flavor t4" in message)
    job = json.loads(queues.kubectl("get", "job", "any", "-n", "science", "-o", "json"))
    spec = job["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"gpuform.io/pool": "whole"}
    assert {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"} in spec["tolerations"]
    until(lambda: [gated(item) for item in served(queues)], lambda held: held == [False, False])
    assert all("kueue.x-k8s.io/podset" in item["metadata"]["labels"] for item in served(queues))
    second = ENV.workloads[2].model_copy(update={"name": "claims-more"})
    for manifest in workloads.objects(ENV, second):
        queues.apply(manifest)
    until(lambda: queues.workload("claims-more", "science").get("status"), bool)
    queues.waits("claims-more", "science", lambda message: "gpu.nvidia.com in flavor claimed" in message)
    (free,) = queues.items("pods", "other")
    assert not gated(free)
    assert not [key for key in free["metadata"]["labels"] if "kueue" in key]
    declare(queues, "mine")
    until(lambda: admitted(queues, "mine", "arts"), bool, what=lambda: queues.why("mine", "arts"))
    assert queues.workload("mine", "arts")["spec"]["priority"] == 1000, "of its pods' PriorityClass"


def ranks(queues: Queues, name: str, zone: str) -> None:
    queues.node(name, "20b2", 8)
    queues.label(name, ZONE, zone)
    queues.label(name, "gpuform.io/pool", "ranks")
    queues.offers(name, {"gpu": 8})


def test_a_planned_gang_starts_whole_and_close_or_not_at_all(site: Queues) -> None:
    """4 x 8 GPUs on three free nodes start no pod; with a fourth node, all start within 10 s."""
    site.operator()
    for index in range(3):
        ranks(site, f"ranks-{index}", "a")
    declare(site, "gang")
    site.waits("gang", "arts", lambda message: "allows to fit only 3 out of 4 pod(s)" in message)
    assert site.items("pods", "arts", "-l", "app.kubernetes.io/name=gang") == []
    ranks(site, "ranks-3", "b")
    site.runs("gang", "arts", pods=4, seconds=10)
    assert len(set(site.running("gang", "arts"))) == 4
    site.kubectl("delete", "job", "gang", "-n", "arts")
    declare(site, "close")
    site.waits("close", "arts", lambda message: "allows to fit only 3 out of 4 pod(s)" in message)
    site.label("ranks-3", ZONE, "a")
    site.runs("close", "arts", pods=4)


def test_a_changed_topology_takes_the_place_of_the_old_one(site: Queues) -> None:
    """Kueue refuses a change in place. What runs goes on; Kueue counts neither its quota nor its nodes."""
    site.runs("close", "arts", pods=4)
    (flavor,) = [manifest for manifest in planned.manifests(ENV) if "topologyName" in manifest["spec"]]
    with pytest.raises(AssertionError, match="tolerations are immutable"):
        site.apply({**flavor, "spec": {**flavor["spec"], "tolerations": []}})
    declared = ENV.resolved()
    declared["queues"]["topology"] = {"ranks": ["kubernetes.io/os", ZONE]}
    for manifest in planned.manifests(parse(declared)):
        site.apply(manifest)
    for kind in ("resourceflavor", "topologies.kueue.x-k8s.io"):
        site.kubectl("delete", kind, flavor["metadata"]["name"], "--timeout=30s")
    declare(site, "gang")
    until(lambda: admitted(site, "gang", "arts"), bool, what=lambda: site.why("gang", "arts"))
    assert len(site.running("close", "arts")) == 4
    assert site.running("gang", "arts") == []
    site.kubectl("delete", "job", "close", "-n", "arts")
    site.runs("gang", "arts", pods=4)
