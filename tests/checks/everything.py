"""Every checked environment, and everything that it is rendered to.

A rendered document is a Kubernetes object (``kind``), a chart with its values (``chart``), or for users.
So a new part of the plan is checked as soon as it is rendered.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from infra.config import load, parse
from infra.model.environment import Environment
from infra.plan.render import render
from infra.strict_yaml import load_all
from tests.plan import aws_environments
from tests.plan.environments import on

ROOT = Path(__file__).parents[2]

Document = dict[str, Any]

T4, A100 = {"machine": "g2.5xlarge"}, {"machine": "g4.p1.40g"}
FOUR_KINDS = ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb")
SEVEN = {"kind": "mig", "layout": "all-1g.5gb"}
CERN = {"3g.20gb": 1, "2g.10gb": 2}
QUOTAS: dict[str, Any] = {
    "scheduling": {"packer": True},
    "priorities": {"urgent": 1000},
    "namespaces": [{"name": "team", "quota": {"p0": CERN, "p1": 1}}],
    "workloads": [{"name": "w", "kind": "pod", "pool": "p1", "priority": "urgent", "image": "a:1"}],
}
QUEUES: dict[str, Any] = {
    "fair_sharing": True,
    "cohorts": [{"name": "lab"}, {"name": "physics", "parent": "lab"}],
    "topology": {"p2": ["topology.kubernetes.io/zone"]},
    "teams": [
        {
            "name": "science",
            "namespaces": ["science", "default"],
            "cohort": "physics",
            "quota": {"p0": 2, "p1": CERN, "p2": {"1g.5gb": 14, "gpu": 1}, "p3": 1},
            "borrow": {"p0": 1, "p1": {"3g.20gb": 0}},
            "lend": {"p0": 1},
            "order": "strict",
            "preempt": {"within": "lower_priority", "reclaim": "any"},
            "weight": 2,
        },
        {"name": "arts", "namespaces": ["arts"], "cohort": "lab", "quota": {"p0": 2, "p3": 0}},
    ],
}
POOLS: dict[str, tuple[dict[str, Any], ...]] = {
    "not renamed": ({**T4, "sharing": {"kind": "time_slicing", "replicas": 2, "rename": False}},),
    "one name, two layouts": (
        {**A100, "sharing": {"kind": "mig", "layout": "all-1g.10gb"}},
        {"machine": "p4de.24xlarge", "sharing": {"kind": "mig", "layout": "all-1g.10gb"}},
    ),
    "media engines": ({**A100, "sharing": {"kind": "mig", "layout": "all-1g.5gb+me"}},),
    "a long name": ({**A100, "sharing": {"kind": "mig", "layout": dict.fromkeys(FOUR_KINDS, 1)}},),
    "whole": ({**A100}, {"machine": "m6i.xlarge"}),
    "some of a node's GPUs": ({"machine": "g4.p4.40g", "sharing": {**SEVEN, "devices": [0, 1]}},),
    "shares of slices": (
        {**A100, "sharing": {**SEVEN, "share": {"replicas": 2}}},
        {**A100, "sharing": {**SEVEN, "share": {"replicas": 3, "rename": False}, "strategy": "single"}},
    ),
    "a strategy of its own": ({**A100, "sharing": {**SEVEN, "strategy": "single"}}, {**T4}),
    "mps beside slices": ({**A100, "sharing": SEVEN}, {**T4, "sharing": {"kind": "mps", "replicas": 4}}),
    "a name of its own": (
        {**A100, "sharing": {"kind": "mig", "layout": {"1g.5gb": 3, "2g.10gb": 2}, "name": "bumble"}},
    ),
    "claims": ({**A100, "sharing": {"kind": "dra"}}, {**A100, "sharing": {**SEVEN, "kind": "dra"}}, T4),
    "several owners": ({**A100, "sharing": SEVEN, "trust": "multi"},),
}  # fmt: skip
# Pools, and settings beside them, for NVIDIA's own components.
ALONE: dict[str, Any] = {"mode": "device_plugin", "mig_strategy": "none"}
MEASURED: dict[str, Any] = {
    "retention": "30d",
    "storage": {"size": "100Gi", "class": "fast"},
    "remote_write": {"url": "https://other.example/write", "secret": "other"},
    "scrape": "scrape_configs",
    "interval": "5s",
    "counters": ["DCGM_FI_DEV_FB_TOTAL"],
    "alertmanager": {"config_secret": "who"},
}
STRATEGIES: dict[str, tuple[str, dict[str, Any]]] = {
    "mps": ("none", {**T4, "sharing": {"kind": "mps", "replicas": 4}}),
    "single": ("single", {**A100, "sharing": SEVEN}),
}


def embedded(*pools: dict[str, Any], mig_strategy: str = "mixed", **more: Any) -> Environment:
    return on("embedded", *pools, **{"gpu_operator": {"mig_strategy": mig_strategy}, **more})


def existing(
    *pools: dict[str, Any], monitoring: dict[str, Any] | None = None, **operator: Any
) -> Environment:
    more = {} if monitoring is None else {"monitoring": monitoring}
    return on("existing", *pools, gpu_operator=operator, **more)


def monitored_on_aws() -> Environment:
    room = aws_environments.aws(aws_environments.SLICED).resolved()
    return parse({**room, "monitoring": {"storage": {"size": "50Gi", "class": "gp2"}}})


def healthy(env: Environment, **settings: Any) -> Environment:
    return parse({**env.resolved(), "health": settings})


def queued(kind: str, **queue: Any) -> dict[str, Any]:
    return {
        "name": f"q-{kind}",
        "namespace": "science",
        "kind": kind,
        "queue": "science",
        "image": "a:1",
        **queue,
    }


def with_queues() -> Environment:
    """Pools of every kind of sharing, and every kind of workload in a queue."""
    works = [
        queued("job", pool="p0", parallelism=2),
        queued("deployment", pool="p1", slice="3g.20gb", service={"port": 80}),
        queued("pod", pool="p3"),
        {**queued("job", pool="p2", slice="1g.5gb", parallelism=2, gang=True), "name": "gang"},
    ]
    pools: tuple[dict[str, Any], ...] = (
        {**T4, "sharing": {"kind": "time_slicing", "replicas": 4}},
        {**A100, "sharing": {"kind": "mig", "layout": CERN}},
        {
            "machine": "g4.p4.40g",
            "sharing": {**SEVEN, "devices": [0, 1]},
            "taints": [{"key": "a", "value": "b"}],
        },
        {**A100, "sharing": {"kind": "dra"}},
    )
    return embedded(*pools, queues=QUEUES, workloads=works)


def packed_on_aws() -> Environment:
    work = {"kind": "pod", "name": "w", "pool": "p0", "image": "serve:1"}
    room = aws_environments.aws(
        {**aws_environments.SLICED, "spare": 1}, version="1.36", workloads=[work]
    ).resolved()
    return parse({**room, "scheduling": {"packer": True}})


def queues_on_aws() -> Environment:
    team = {"name": "team", "namespaces": ["team"], "quota": {"p0": 3}}
    return parse({**aws_environments.aws(aws_environments.SLICED).resolved(), "queues": {"teams": [team]}})


def scaled() -> Environment:
    """By requests of Triton's, and of a gateway's down to none."""
    own = {"name": "triton", "kind": "inference", "pool": "p0", "image": "a:1", "service": {"port": 80}}
    work = [
        {**own, "scale": {"max": 6, "qps_per_replica": 50}, "metrics": {"port": 8002}},
        {
            **own,
            "name": "idle",
            "near": "triton",
            "scale": {"min": 0, "max": 2, "qps_per_replica": 0.5, "query": "vector(0)"},
        },
    ]
    return parse({**existing(T4, monitoring={}).resolved(), "workloads": work})


def served() -> Environment:
    """By KServe: scaled by requests, and two pods with a claimed GPU and a model on a volume."""
    own = {"kind": "inference", "image": "a:1", "service": {"port": 80, "target_port": 8000}}
    work = [
        {
            **own,
            "name": "triton",
            "pool": "p0",
            "scale": {"max": 6, "qps_per_replica": 50},
            "model": {"uri": "s3://models/a", "format": "onnx", "service_account": "models"},
        },
        {
            **own,
            "name": "fixed",
            "pool": "p1",
            "replicas": 2,
            "shm": "64Mi",
            "priority": "urgent",
            "update": {"kind": "recreate"},
            "command": ["serve", "/mnt/models"],
            "model": {"uri": "pvc://models/b", "format": "triton"},
        },
    ]
    pools = (T4, {**A100, "sharing": {"kind": "dra"}})
    whole = existing(*pools, monitoring={}).resolved()
    return parse({**whole, "priorities": {"urgent": 1000}, "workloads": work})


@cache
def environments() -> dict[str, Environment]:
    """Stack files, the table of AWS environments, and one for each other way of sharing."""
    found = {path.stem: load(path) for path in sorted(ROOT.glob("Pulumi.*.yaml"))}
    found |= {f"aws, {name}": env for name, env in aws_environments.TABLE.items()}
    found |= {name: embedded(*pools) for name, pools in POOLS.items()}
    found |= {name: embedded(pool, mig_strategy=how) for name, (how, pool) in STRATEGIES.items()}
    shared = {**T4, "sharing": {"kind": "time_slicing", "replicas": 3, "rename": False}}
    return found | {
        "the device plugin alone": existing(shared, **ALONE),
        "the device plugin alone, simulated": embedded(shared, gpu_operator=ALONE),
        "an operator of the nodes' drivers": existing(shared, driver="host", toolkit="host"),
        "an operator that upgrades": existing(
            shared, driver_version="580.95.05", upgrade={"max_parallel": 2, "drain": {"force": True}}
        ),
        "packed": embedded({**A100, "sharing": {"kind": "mig", "layout": CERN}}, T4, **QUOTAS),
        "aws, packed, with room": packed_on_aws(),
        "measured": existing(shared, monitoring=MEASURED),
        "measured, with the device plugin alone": existing(shared, monitoring=MEASURED, **ALONE),
        "measured, as it comes": existing(shared, monitoring={}, **ALONE),
        "measured, without alerts and Grafana": existing(
            shared, monitoring={"alerts": False, "dashboards": False}
        ),
        "measured, simulated": embedded(shared, A100, monitoring={}),
        "measured, simulated, by Bumble": embedded(A100, monitoring={"scrape": "scrape_configs"}),
        "measured, simulated, with the device plugin alone": embedded(
            shared, gpu_operator=ALONE, monitoring={}
        ),
        "aws, measured": monitored_on_aws(),
        "health": healthy(existing(shared, monitoring={}), mode="ticket", max=3),
        "health, only observed": healthy(existing(shared, monitoring={}, **ALONE)),
        "aws, health": healthy(monitored_on_aws(), mode="ticket"),
        "openstack, health": healthy(load(ROOT / "Pulumi.openstack-dev.yaml"), mode="ticket"),
        "aws, repaired by Karpenter": healthy(monitored_on_aws(), repair="karpenter"),
        "queues": with_queues(),
        "aws, queues": queues_on_aws(),
        "scaled by requests": scaled(),
        "served by KServe": served(),
        "without cdi": existing({**A100, "sharing": SEVEN}, cdi=False),
    }


@cache
def _documents(name: str) -> tuple[Document, ...]:
    """Of one environment, without repository keys, which no platform document contains."""
    env = environments()[name]
    keys = {} if env.cluster.kind != "hosts" else _any_key()
    texts = render(env, keys)
    return tuple(
        document
        for file, text in texts.items()
        if file.endswith(".yaml")
        for document in load_all(text)
        if document
    )


def _any_key() -> Any:
    class AnyKey(dict[str, str]):
        def __missing__(self, path: str) -> str:
            return f"the key in {path}"

    return AnyKey()


def objects(name: str) -> Iterator[Document]:
    return (document for document in _documents(name) if "kind" in document and "apiVersion" in document)


def charts(name: str) -> Iterator[Document]:
    """Charts with their values, each under the last part of its address."""
    found = [document for document in _documents(name) if "chart" in document and "values" in document]
    return ({**item, "chart": item["chart"].rpartition("/")[2]} for item in found)


def config_map(name: str, key: str) -> Iterator[tuple[str, str]]:
    """Entries, by key, of the environment's ConfigMaps with names that start with ``key``."""
    for item in objects(name):
        if item["kind"] == "ConfigMap" and item["metadata"]["name"].startswith(key):
            yield from item["data"].items()
