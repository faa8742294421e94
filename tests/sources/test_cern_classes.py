"""CERN's table of use cases: each class of work on suitable sharing, side by side (FACTS 1, row 9).

The slide reserves time-slicing for work that may wait: it calls it inappropriate for latency-sensitive work.
"""

from __future__ import annotations

import pytest

from infra.config import parse
from infra.model.environment import Environment
from infra.model.errors import InputError
from infra.plan import sharing, workloads

pytestmark = pytest.mark.unit

IMAGE = "registry.example/work:1"
SHARING = {
    "cad": {"kind": "mig", "layout": {"2g.10gb": 3}},
    "notebooks": {"kind": "mig", "layout": "all-1g.5gb", "share": {"replicas": 2}},
    "simulation": {"kind": "exclusive"},
    "ci": {"kind": "time_slicing", "replicas": 8},
}


def environment(**trust: str) -> Environment:
    pools = [
        {
            "name": name,
            "machine": "g4.p1.40g",
            "nodes": 1,
            "sharing": block,
            "trust": trust.get(name, "single"),
        }
        for name, block in SHARING.items()
    ]
    work = [
        {"name": name, "kind": "deployment", "pool": name, "image": IMAGE, "replicas": 1} for name in SHARING
    ]
    return parse({"name": "cern", "cluster": {"kind": "embedded"}, "pools": pools, "workloads": work})


def asked(env: Environment) -> dict[str, str]:
    limits = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        for one in workloads.manifests(env)
    }
    return {name: next(key for key in found if "nvidia" in key) for name, found in limits.items()}


def test_cern_row_9_each_class_has_its_sharing() -> None:
    env = environment()
    assert asked(env) == {
        "cad": "nvidia.com/mig-2g.10gb",
        "notebooks": "nvidia.com/mig-1g.5gb.shared",
        "simulation": "nvidia.com/gpu",
        "ci": "nvidia.com/gpu.shared",
    }
    pods = {pool.name: sum(sharing.offered(env, pool).values()) for pool in env.pools}
    assert pods == {"cad": 3, "notebooks": 14, "simulation": 1, "ci": 8}


def test_cern_row_9_owners_who_do_not_trust_each_other_get_no_turns() -> None:
    assert environment(cad="multi", simulation="multi").pool("cad").trust == "multi"
    for name, path in (("ci", "pools[3].sharing.kind"), ("notebooks", "pools[1].sharing.share")):
        with pytest.raises(InputError) as refused:
            environment(**{name: "multi"})
        assert refused.value.path == path
        assert "share its memory and its faults" in refused.value.fact
