"""Every checked environment, and everything that it is rendered to.

A rendered document is a Kubernetes object (``kind``), a chart with its values (``chart``), or for users.
So a new part of the plan is checked as soon as it is rendered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from infra.config import load, parse
from infra.model.environment import Environment
from infra.plan.render import render
from infra.strict_yaml import load_all
from tests.build import aws_environments
from tests.build.environments import on

ROOT = Path(__file__).parents[2]

Document = dict[str, Any]

T4, A100 = {"machine": "g2.5xlarge"}, {"machine": "g4.p1.40g"}
FOUR_KINDS = ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb")
SEVEN = {"kind": "mig", "layout": "all-1g.5gb"}
CERN = {"3g.20gb": 1, "2g.10gb": 2}
FRAGMENT: dict[str, Any] = {
    "hostNetwork": True,
    "initContainers": [{"name": "first", "image": "b:1"}],
    "containers": [
        {
            "name": "f",
            "securityContext": {"runAsUser": 0, "capabilities": {"add": ["IPC_LOCK"]}},
            "envFrom": [{"secretRef": {"name": "s"}}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        },
        {"name": "side", "image": "c:1", "securityContext": {"privileged": True}},
    ],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
}
QUOTAS: dict[str, Any] = {
    "scheduling": {"packer": True},
    "priorities": {"urgent": 1000},
    "namespaces": [
        {"name": "team", "quota": {"p0": CERN, "p1": 1}},
        {"name": "rdma", "pod_security": "privileged"},
    ],
    "admission": "deny",
    "workloads": [
        {"name": "w", "kind": "pod", "pool": "p1", "priority": "urgent", "image": "a:1"},
        {"name": "f", "kind": "job", "pool": "p1", "namespace": "rdma", "image": "a:1", "pod": FRAGMENT},
    ],
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
    "GPUs cut differently": (
        {
            "machine": "g4.p4.40g",
            "sharing": {
                "kind": "mig",
                "layouts": [
                    {"devices": [0, 2], "layout": {"3g.20gb": 1, "2g.10gb": 2}},
                    {"devices": [3], "layout": "all-1g.5gb"},
                ],
            },
        },
    ),
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


def existing(*pools: dict[str, Any], **operator: Any) -> Environment:
    return on("existing", *pools, gpu_operator=operator)


def on_aws(*, monitoring: bool = False, **more: Any) -> Environment:
    storage = {"monitoring": {"storage": {"size": "50Gi", "class": "gp2"}}} if monitoring else {}
    return extended(aws_environments.aws(aws_environments.SLICED), **storage, **more)


def extended(env: Environment, **more: Any) -> Environment:
    """The environment with other settings."""
    return parse({**env.resolved(), **more})


def with_queues() -> Environment:
    """Pools of every kind of sharing, and every kind of workload in a queue."""
    works = [
        {"kind": "job", "pool": "p0", "parallelism": 2},
        {"kind": "deployment", "pool": "p1", "slice": "3g.20gb", "service": {"port": 80}},
        {"kind": "pod", "pool": "p3"},
        {"name": "gang", "kind": "job", "pool": "p2", "slice": "1g.5gb", "parallelism": 2, "gang": True},
    ]
    queued = {"namespace": "science", "queue": "science", "image": "a:1"}
    whole = {"machine": "g4.p4.40g", "sharing": {**SEVEN, "devices": [0, 1]}}
    pools: tuple[dict[str, Any], ...] = (
        {**T4, "sharing": {"kind": "time_slicing", "replicas": 4}},
        {**A100, "sharing": {"kind": "mig", "layout": CERN}},
        {**whole, "taints": [{"key": "a", "value": "b"}]},
        {**A100, "sharing": {"kind": "dra"}},
    )
    named = [{"name": f"q-{work['kind']}", **queued, **work} for work in works]
    return embedded(*pools, queues=QUEUES, workloads=named)


def packed_on_aws() -> Environment:
    work = {"kind": "pod", "name": "w", "pool": "p0", "image": "serve:1"}
    room = {**aws_environments.SLICED, "spare": 1}
    return extended(aws_environments.aws(room, version="1.36", workloads=[work]), scheduling={"packer": True})


def scaled(how: dict[str, Any] | None = None, **more: Any) -> Environment:
    """By requests of Triton's, and of a gateway's down to none; ``how`` a Prometheus of others is asked."""
    own = {"kind": "inference", "pool": "p0", "service": {"port": 80}}
    by_triton = {"scale": {"max": 6, "qps_per_replica": 50}, "metrics": {"port": 8002}}
    by_gateway = {"scale": {"min": 0, "max": 2, "qps_per_replica": 0.5, "query": "vector(0)"}}
    work = [
        {"name": "triton", **own, **by_triton},
        {"name": "idle", **own, **by_gateway, "near": "triton"},
    ]
    theirs = {"prometheus": {"url": "https://mimir.example", **how}} if how else {}
    return on("existing", T4, monitoring=theirs, workloads=work, **more)


def served() -> Environment:
    """By KServe: scaled by requests, and two pods with a claimed GPU and a model on a volume."""
    own = {"kind": "inference", "service": {"port": 80, "target_port": 8000}}
    model = {"uri": "s3://models/a", "format": "onnx", "service_account": "models"}
    fixed = {"replicas": 2, "shm": "64Mi", "priority": "urgent", "update": {"kind": "recreate"}}
    fixed |= {"command": ["serve", "/mnt/models"], "model": {"uri": "pvc://models/b", "format": "triton"}}
    work = [
        {"name": "triton", **own, "pool": "p0", "scale": {"max": 6, "qps_per_replica": 50}, "model": model},
        {"name": "fixed", **own, "pool": "p1", **fixed},
    ]
    pools = (T4, {**A100, "sharing": {"kind": "dra"}})
    return on("existing", *pools, monitoring={}, priorities={"urgent": 1000}, workloads=work)


@cache
def environments() -> dict[str, Environment]:
    """Stack files, the table of AWS environments, and one for each other way of sharing."""
    found = {path.stem: load(path) for path in sorted(ROOT.glob("Pulumi.*.yaml"))}
    found |= {f"aws, {name}": env for name, env in aws_environments.TABLE.items()}
    found |= {name: embedded(*pools) for name, pools in POOLS.items()}
    found |= {name: embedded(pool, mig_strategy=how) for name, (how, pool) in STRATEGIES.items()}
    shared = {**T4, "sharing": {"kind": "time_slicing", "replicas": 3, "rename": False}}
    team = {"name": "team", "namespaces": ["team"], "quota": {"p0": 3}}
    unseen = {"alerts": False, "dashboards": False}
    ticket = {"mode": "ticket"}

    def measured(monitoring: dict[str, Any] | None = None, **operator: Any) -> Environment:
        return on("existing", shared, gpu_operator=operator, monitoring=monitoring or {})

    return found | {
        "the device plugin alone": existing(shared, **ALONE),
        "the device plugin alone, simulated": embedded(shared, gpu_operator=ALONE),
        "an operator of the nodes' drivers": existing(shared, driver="host", toolkit="host"),
        "an operator that upgrades": existing(
            shared, driver_version="580.95.05", upgrade={"max_parallel": 2, "drain": {"force": True}}
        ),
        "packed": embedded({**A100, "sharing": {"kind": "mig", "layout": CERN}}, T4, **QUOTAS),
        "aws, packed, with room": packed_on_aws(),
        "measured": measured(MEASURED),
        "measured, with the device plugin alone": measured(MEASURED, **ALONE),
        "measured, as it comes": measured(**ALONE),
        "measured, without alerts and Grafana": measured(unseen),
        "measured, simulated": embedded(shared, A100, monitoring={}),
        "measured, simulated, by Bumble": embedded(A100, monitoring={"scrape": "scrape_configs"}),
        "measured, simulated, with the device plugin alone": embedded(
            shared, gpu_operator=ALONE, monitoring={}
        ),
        "aws, measured": on_aws(monitoring=True),
        "health": extended(measured(), health={**ticket, "max": 3}),
        "health, only observed": extended(measured(**ALONE), health={}),
        "aws, health": on_aws(monitoring=True, health=ticket),
        "openstack, health": extended(load(ROOT / "Pulumi.openstack-dev.yaml"), health=ticket),
        "aws, repaired by Karpenter": on_aws(monitoring=True, health={"repair": "karpenter"}),
        "queues": with_queues(),
        "aws, queues": on_aws(queues={"teams": [team]}),
        "scaled by requests": scaled(),
        "scaled by requests, with a password": scaled({"secret": "metrics"}, health={}),
        "scaled by requests, with files": scaled({"config_namespace": "default"}, health={}),
        "scaled by requests, signed": scaled({"sigv4": {"region": "eu-central-1"}}),
        "served by KServe": served(),
        "without cdi": existing({**A100, "sharing": SEVEN}, cdi=False),
    }


@cache
def _documents(name: str) -> tuple[Document, ...]:
    """Of one environment; repository keys are made up."""
    texts = render(environments()[name], defaultdict(lambda: "a key"))
    files = (text for file, text in texts.items() if file.endswith(".yaml"))
    return tuple(document for text in files for document in load_all(text) if document)


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
