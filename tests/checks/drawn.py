"""Environments that are valid by construction: every kind of sharing on every GPU that supports it.

The model is not asked here whether something is allowed: if it refuses one of these, that is a finding.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from infra.model.gpu.machines import MACHINES, Machine
from infra.model.gpu.mig import Geometry
from infra.model.gpu.models import GPUS
from tests.build.mig_layouts import GEOMETRIES, layouts

Mapping = dict[str, Any]

_IMAGES = {"al2023": "al2023@v20260801", "al2023-nvidia": "al2023@v20260801"}
_REPLICAS = st.integers(2, 12)
_STRATEGIES = st.sampled_from(["none", "single", "mixed"])


def machines(kind: str, mig: bool = False) -> list[Machine]:
    """Machines with GPUs for the kind of cluster; with ``mig`` only those that support MIG."""
    return [
        item
        for item in MACHINES.values()
        if item.gpu
        and item.arch == "amd64"
        and (kind != "aws" or item.seller == "ec2")
        and (item.gpu in GEOMETRIES or not mig)
        # No driver supports it beside Volta, and on AWS it needs a newer image.
        and item.gpu != "RTX-PRO-4500"
    ]


@st.composite
def environments(draw: st.DrawFn) -> Mapping:
    """Input for the parser: one to four pools, a workload for some of them."""
    kind = draw(st.sampled_from(["embedded", "aws", "openstack"]))
    strategy = draw(_STRATEGIES)
    pools = [draw(_pool(index, kind, strategy)) for index in range(draw(st.integers(1, 4)))]
    found: Mapping = {
        "name": "drawn",
        "cluster": {"embedded": {"kind": "embedded"}, "aws": _aws(), "openstack": _openstack(pools)}[kind],
        "gpu_operator": {"mig_strategy": strategy},
        "pools": pools,
        "workloads": [draw(_workload(pool, strategy)) for pool in pools if draw(st.booleans())],
    }
    if draw(st.booleans()):
        found["gpu_operator"]["gpu_taint"] = "node-role.kubernetes.io/gpu"
    return found


def _aws() -> Mapping:
    network = {"cidr": "10.0.0.0/16", "zones": ["us-west-2a", "us-west-2b"]}
    return {"kind": "aws", "region": "us-west-2", "version": "1.34", "network": network, "images": _IMAGES}


OWN = "own."
"""Prefix of flavors that a drawn cluster declares; the rest is the machine name."""


def _openstack(pools: list[Mapping]) -> Mapping:
    named = {pool["machine"] for pool in pools if pool.get("machine", "").startswith(OWN)}
    machines = {name: MACHINES[name.removeprefix(OWN)] for name in sorted(named)}
    flavors = {
        name: {"gpu": item.gpu, "count": item.gpus, "vcpu": item.vcpu, "memory_gib": item.memory}
        for name, item in machines.items()
    }
    return {"kind": "openstack", "template": "t", "version": "1.34", "flavors": flavors}


@st.composite
def _pool(draw: st.DrawFn, index: int, kind: str, strategy: str) -> Mapping:
    how = draw(st.sampled_from(_KINDS))
    machine = draw(st.sampled_from(machines(kind, mig=how == "mig")))
    assert machine.gpu is not None
    pool: Mapping = {"name": f"p{index}"}
    models, counts = [machine.gpu], [machine.gpus]
    if kind == "openstack":
        own = machine.seller == "ec2" or draw(st.booleans())
        pool["machine"] = f"{OWN if own else ''}{machine.name}"
    elif draw(st.booleans()):
        pool["machine"] = machine.name
    else:
        pool["gpu"] = {"models": models, "count": machine.gpus}
    if kind == "aws" and how != "dra" and draw(st.booleans()):
        same = [item for item in machines(kind) if item.gpu == machine.gpu]
        pool["elastic"] = {"max": {"cpu": max(entry.vcpu for entry in same)}}
        # So that a pod without a pool does not fit another pool as well.
        pool["taints"] = [{"key": f"team-{index}", "value": "a"}]
        if "gpu" in pool and draw(st.booleans()):
            counts = sorted({one.gpus for one in same})
            pool["gpu"]["count"] = counts
    elif kind == "openstack" and how != "dra" and draw(st.booleans()):
        least = draw(st.integers(1, 3))
        pool["elastic"] = {"min": least, "max": {"nodes": least + draw(st.integers(1, 3))}}
    else:
        pool["nodes"] = draw(st.integers(1, 3))
    pool["sharing"] = draw(_SHARING[how](machine.gpu, counts, strategy, index))
    if _isolated(pool["sharing"]) and draw(st.booleans()):
        pool["trust"] = "multi"
    return pool


def _isolated(sharing: Mapping) -> bool:
    return sharing["kind"] in ("exclusive", "dra") or (sharing["kind"] == "mig" and "share" not in sharing)


def _exclusive(*_: Any) -> st.SearchStrategy[Mapping]:
    return st.just({"kind": "exclusive"})


def _time_slicing(*_: Any) -> st.SearchStrategy[Mapping]:
    return _share().map(lambda share: {"kind": "time_slicing", **share})


def _share() -> st.SearchStrategy[Mapping]:
    switches = {"rename": st.booleans(), "fail_requests_greater_than_one": st.booleans()}
    return st.fixed_dictionaries({"replicas": _REPLICAS}, optional=switches)


def _mps(gpu: str, *_: Any) -> st.SearchStrategy[Mapping]:
    most = 16 if gpu.startswith("V100") else 48
    return st.fixed_dictionaries({"kind": st.just("mps"), "replicas": st.integers(2, most)})


@st.composite
def _dra(draw: st.DrawFn, gpu: str, *_: Any) -> Mapping:
    """Whole GPUs, or slices if the GPU supports MIG."""
    found: Mapping = {"kind": "dra"}
    if gpu in GEOMETRIES and draw(st.booleans()):
        found["layout"] = dict(draw(st.sampled_from(layouts(GEOMETRIES[gpu]))))
    return found


@st.composite
def _layout(draw: st.DrawFn, geometry: Geometry, single: bool) -> Mapping | str:
    layout = dict(draw(st.sampled_from(layouts(geometry))))
    if single:
        layout = dict([draw(st.sampled_from(sorted(layout.items())))])
    ((profile, count), *others) = layout.items()
    whole = not others and count == geometry.max_slices(profile)
    return f"all-{profile}" if whole and draw(st.booleans()) else layout


def _profiles(sharing: Mapping) -> list[str]:
    found = [sharing["layout"]] if "layout" in sharing else [cut["layout"] for cut in sharing["layouts"]]
    names = [[one.removeprefix("all-")] if isinstance(one, str) else [*one] for one in found]
    return sorted({name for one in names for name in one})


@st.composite
def _mig(draw: st.DrawFn, gpu: str, counts: list[int], operator: str, index: int) -> Mapping:
    """Layout, whole GPUs beside it, shares of its slices, a name; only what the effective strategy allows."""
    geometry = GEOMETRIES[gpu]
    found: Mapping = {"kind": "mig"}
    own = draw(st.sampled_from(["single", "mixed"])) if operator == "none" or draw(st.booleans()) else None
    if own:
        found["strategy"] = own
    mixed, (gpus, *more) = (own or operator) == "mixed", counts
    differ = mixed and not more and gpus > 1
    cut = draw(st.sampled_from(["alike", "some", "differently"])) if differ else "alike"
    if cut == "differently":
        groups = draw(st.integers(2, min(3, gpus)))
        numbers = draw(st.permutations(range(gpus)))[: draw(st.integers(groups, gpus))]
        each = [(numbers[group::groups], draw(_layout(geometry, False))) for group in range(groups)]
        found["layouts"] = [{"devices": devices, "layout": layout} for devices, layout in each]
    else:
        found["layout"] = draw(_layout(geometry, not mixed))
    if cut == "some":
        found["devices"] = draw(st.permutations(range(gpus)))[: draw(st.integers(1, gpus - 1))]
    if draw(st.booleans()):
        found["share"] = draw(_share())
    if draw(st.booleans()):
        found["name"] = f"ours-{index}"
    return found


_KINDS = ("exclusive", "time_slicing", "mps", "mig", "mig", "dra")
_SHARING = {"exclusive": _exclusive, "time_slicing": _time_slicing, "mps": _mps, "mig": _mig, "dra": _dra}


@st.composite
def _workload(draw: st.DrawFn, pool: Mapping, operator: str) -> Mapping:
    """One GPU, share or slice of the pool; if the pool has several profiles, one of them by name."""
    found: Mapping = {
        "name": f"w-{pool['name']}",
        "namespace": "work",
        "kind": draw(st.sampled_from(["pod", "deployment", "job"])),
        "pool": pool["name"],
        "image": "registry.example/w:1",
    }
    sharing = pool["sharing"]
    mixed = sharing["kind"] == "mig" and sharing.get("strategy", operator) == "mixed"
    if mixed or (sharing["kind"] == "dra" and "layout" in sharing):
        found["slice"] = draw(st.sampled_from(_profiles(sharing)))
    return found


def first_model(pool: Mapping) -> str:
    """Name of the GPU model in the pool's nodes; each drawn pool has one."""
    machine = pool.get("machine", "").removeprefix(OWN)
    named = MACHINES[machine].gpu if machine else pool["gpu"]["models"][0]
    assert named is not None
    return GPUS[named].name
