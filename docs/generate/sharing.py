"""Which GPU can be shared how, by validating every combination with the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from infra.config import parse
from infra.model.base.errors import InputError
from infra.model.gpu.models import GPUS, Gpu
from infra.model.pool import allocatable
from infra.plan import workloads

Block = Mapping[str, Any]

_KINDS: Mapping[str, Block] = {
    "`exclusive`": {"kind": "exclusive"},
    "`time_slicing`": {"kind": "time_slicing", "replicas": 4},
    "`mps`": {"kind": "mps", "replicas": 4},
    "`mig`": {"kind": "mig"},
    "`mig`, `share`": {"kind": "mig", "share": {"replicas": 2}},
    "`dra`": {"kind": "dra"},
}
_EXAMPLE = "g4.p2.40g"
"""Two A100 40GB on a node, so that figures per node differ from figures per GPU."""
_ANY_WAY = "A100-PCIE-40GB"
"""Supports every kind of sharing, so a refusal of its pool has another reason than the GPU."""
_EXAMPLES = (
    "kind: exclusive",
    "kind: time_slicing, replicas: 4",
    "kind: time_slicing, replicas: 4, rename: false",
    "kind: mps, replicas: 4",
    "kind: mig, layout: {3g.20gb: 1, 2g.10gb: 2}",
    "kind: mig, layout: all-1g.5gb",
    "kind: mig, layout: all-1g.5gb, strategy: single",
    "kind: mig, layout: all-1g.5gb, devices: [0]",
    "kind: mig, layouts: [{devices: [0], layout: {3g.20gb: 2}}, {devices: [1], layout: all-1g.5gb}]",
    "kind: mig, layout: all-1g.5gb, share: {replicas: 2}",
    "kind: dra",
    "kind: dra, layout: all-1g.5gb",
)


def tables() -> dict[str, Any]:
    """What the template is filled with. ``notes`` grows with the cells: each reason once, in order of use."""
    notes: dict[str, int] = {}

    def cells(gpu: Gpu, trust: str) -> list[str]:
        return [_cell(gpu, block, trust, notes) for block in _KINDS.values()]

    return {
        "kinds": _KINDS,
        "gpus": GPUS.values(),
        "any_way": GPUS[_ANY_WAY],
        "cells": cells,
        "notes": notes,
        "geometries": _geometries(),
        "mig_resource": allocatable.mig_resource,
        "examples": _EXAMPLES,
        "offer": _offer,
    }


def _cell(gpu: Gpu, block: Block, trust: str, notes: dict[str, int]) -> str:
    refused = _refusal(gpu, block, trust)
    if refused:
        reason = refused.fact.replace(gpu.name, "the GPU").removesuffix(", and trust is multi")
        return f"no<sup>{notes.setdefault(reason, len(notes) + 1)}</sup>"
    if gpu.geometry is None or block != {"kind": "mig"} or trust != "single":
        return "yes"
    return f"yes, {gpu.geometry.max_slices(gpu.geometry.profiles[0].name)} slices"


def _refusal(gpu: Gpu, block: Block, trust: str) -> InputError | None:
    """The model's error for such a pool; None if it is valid."""
    smallest = gpu.geometry.profiles[0].name if gpu.geometry else "1g.5gb"
    pool = {
        "name": "p",
        "gpu": {"models": [gpu.name], "count": 1},
        "selector": {"a": "b"},
        "trust": trust,
        "sharing": {**block, **({"layout": f"all-{smallest}"} if block["kind"] == "mig" else {})},
    }
    try:
        parse({"name": "e", "cluster": {"kind": "existing", "kubeconfig": "k"}, "pools": [pool]})
    except InputError as error:
        return error
    return None


def _geometries() -> list[tuple[str, Any]]:
    """Names of the GPUs with the same profiles, and these."""
    found: dict[int, list[Gpu]] = {}
    for gpu in GPUS.values():
        if gpu.geometry:
            found.setdefault(id(gpu.geometry), []).append(gpu)
    return [("<br>".join(gpu.name for gpu in gpus), gpus[0].geometry) for gpus in found.values()]


def _offer(title: str) -> Iterator[str]:
    """What a node offers, what a pod requests, and the node's product."""
    block = yaml.safe_load(f"{{{title}}}")
    pool = {"name": "p", "machine": _EXAMPLE, "nodes": 1, "sharing": block}
    work = {"name": "w", "kind": "pod", "pool": "p", "image": "a:1"}
    layout = block["layouts"][0]["layout"] if "layouts" in block else block.get("layout")
    if isinstance(layout, dict):
        work["slice"] = next(iter(layout))
    elif "devices" in block:
        work["slice"] = layout.removeprefix("all-")
    env = parse({"name": "e", "cluster": {"kind": "embedded"}, "pools": [pool], "workloads": [work]})
    (made,) = env.pools
    offered = {**allocatable.resources(made), **allocatable.claimable(made)}
    products = allocatable.products(made)
    each = allocatable.mps_memory_mib(made)
    memory = f", {each} MiB each" if each else ""
    yield "<br>".join(f"`{name}`: {count}{memory}" for name, count in offered.items())
    yield "<br>".join(_requested(workloads.manifests(env)))
    yield f"`{products[0]}`" if products else "no product label to select by: allocated by claim"


def _requested(manifests: Iterable[Block]) -> Iterator[str]:
    for one in manifests:
        if one["kind"] == "ResourceClaimTemplate":
            (request,) = one["spec"]["spec"]["devices"]["requests"]
            yield f"a claim of `{request['exactly']['deviceClassName']}`"
        if one["kind"] == "Pod":
            limits = one["spec"]["containers"][0]["resources"]["limits"]
            yield from (f"`{name}: {count}`" for name, count in limits.items() if "nvidia" in name)
