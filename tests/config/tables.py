"""The tables of refusals (bad_*.yaml), the environments they change, and what makes a row's environment."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.config import parse
from infra.model.environment import Environment
from tests.build.aws_environments import aws
from tests.build.aws_stacks import small
from tests.build.edits import changed
from tests.build.environments import declared

Json = dict[str, Any]
Row = Mapping[str, Any]


def read(name: str) -> Any:
    return yaml.safe_load((Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8"))


def on(kind: str, *pools: Json, **more: Any) -> Json:
    """An embedded or existing cluster with these pools."""
    return declared(kind, *pools, name="test", **more)


GOOD: Mapping[str, Json] = {
    kind: read(f"good_{kind}")
    for kind in (
        "aws", "embedded", "existing", "hosts", "notebooks", "openstack", "own", "queues", "scaling"
    )
}  # fmt: skip
SERVED = changed(
    GOOD["scaling"],
    {
        "at": "workloads/1/model",
        "put": {"uri": "s3://models/resnet", "format": "onnx", "service_account": "models"},
    },
)
CAPI: tuple[Json, ...] = (
    {"at": "cluster/driver", "put": "capi"},
    {"at": "health", "put": {"mode": "cordon"}},
    {"at": "pools/0/name", "put": "gpu-t4"},  # what the driver refuses or ignores is left out
    {"at": "pools/3/openstack", "remove": True},
    {"at": "pools/4/elastic/min", "put": 1},
)
"""Changes of good_openstack.yaml for Magnum's Cluster API driver."""
T4 = {"name": "t4", "machine": "g2.5xlarge"}
_HEALTH: Mapping[str, Json] = {
    **{kind: on(kind, T4, monitoring={}) for kind in ("embedded", "existing")},
    "aws": small(
        {"name": "burst", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 40}}},
        {"name": "fixed", "machine": "g4dn.xlarge", "nodes": 1},
    )
    | {"monitoring": {}},
}
_MONITORING = {
    **{kind: on(kind, T4) for kind in ("embedded", "existing")},
    **{kind: GOOD[kind] for kind in ("aws", "hosts")},
}
_POOLS: list[Json] = [
    {**T4, "sharing": {"kind": "time_slicing", "replicas": 4}},
    {
        "name": "mig",
        "machine": "g4.p1.40g",
        "sharing": {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}},
    },
    {"name": "whole", "machine": "g4.p4.40g"},
    {"name": "more", "machine": "g1.4xlarge"},
    {"name": "cpu", "machine": "m6i.xlarge"},
]
_WORK = {"name": "work", "kind": "deployment", "replicas": 3, "pool": "t4", "image": "a:1"}
_SCHEDULING: Mapping[str, Json] = {
    "embedded": on("embedded", *_POOLS, workloads=[_WORK]),
    "existing": on("existing", *({**pool, "selector": {"a": pool["name"]}} for pool in _POOLS)),
    "aws": changed(
        GOOD["aws"],
        {"at": "pools/0/elastic", "put": {"max": {"cpu": 16}}},
        {"at": "pools/2", "put": {**_POOLS[4], "elastic": {"max": {"cpu": 16}}}},
    ),
}


def operated(row: Row) -> Json:
    kind, pools = row.get("cluster", "existing"), row.get("pools")
    if kind in ("embedded", "existing"):
        found = on(kind, *(pools or [T4]))
    else:
        found = copy.deepcopy(GOOD[kind])
        found["pools"] = pools or found["pools"]
        found["cluster"] |= row.get("changed", {})
        for key in ("workloads", *row.get("without", ())):
            found.pop(key, None)
    return {**found, "gpu_operator": row["operator"]}


def _edited(good: Json) -> Callable[[Row], Json]:
    return lambda row: changed(good, row, *row.get("and", ()))


def _on_openstack(row: Row) -> Json:
    return changed(GOOD["openstack"], *(CAPI if row.get("of") == "capi" else ()), row, *row.get("and", ()))


def _scaled(row: Row) -> Json:
    return changed(SERVED if row.get("of") == "served" else GOOD["scaling"], row, *row.get("and", ()))


def _scheduled(row: Row) -> Json:
    return changed({**_SCHEDULING[row["of"]], **row.get("and", {})}, row)


def _healthy(row: Row) -> Json:
    found = {**_HEALTH[row["of"]], **row.get("and", {}), row.get("at", "health"): row["put"]}
    return {key: value for key, value in found.items() if value is not None}


def _monitored(row: Row) -> Json:
    return {**_MONITORING[row["of"]], **row.get("and", {}), "monitoring": row["put"]}


TABLES: Mapping[str, Callable[[Row], Json]] = {
    "aws": _edited(GOOD["aws"]),
    "existing": _edited(GOOD["existing"]),
    "health": _healthy,
    "hosts": _edited(GOOD["hosts"]),
    "input": _edited(GOOD["embedded"]),
    "monitoring": _monitored,
    "notebooks": _edited(GOOD["notebooks"]),
    "openstack": _on_openstack,
    "operator": operated,
    "own": _edited(GOOD["own"]),
    "queues": _edited(GOOD["queues"]),
    "scaling": _scaled,
    "scheduling": _scheduled,
}
ROWS: Mapping[str, list[Json]] = {table: read(f"bad_{table}") for table in TABLES}
ENVIRONMENTS = [*GOOD.values(), SERVED, *_HEALTH.values(), *_MONITORING.values(), *_SCHEDULING.values()]
"""Those that the rows change; each is accepted."""


def own_on_aws(pool: Json) -> Environment:
    """This pool, of a GPU model X1 and an instance type x9.24xlarge that the environment declares."""
    gpu = {
        **{key: value for key, value in GOOD["own"]["gpus"]["A100-64GB"].items() if key != "mig"},
        "product": "NVIDIA X1",
    }
    size = {"count": 4, "vcpu": 96, "memory_gib": 512, "pods": 737, "efa": 2, "usd_per_hour": 30.0}
    base = aws({"machine": "g5.xlarge", "nodes": 1}).resolved()
    own = {"gpus": {"X1": gpu}, "machines": {"x9.24xlarge": {"gpu": "X1", **size}}}
    return parse({**base, **own, "pools": [{"name": "p0", **pool}]})
