"""Generates the page on which GPU can be shared how, by validating every combination with the model.

The page is committed; ``python -m infra.sharing_docs docs/reference`` regenerates it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from infra.config import parse
from infra.model import offer
from infra.model.errors import InputError
from infra.model.gpu import GPUS, Gpu
from infra.model.mig import Geometry
from infra.plan import sharing, workloads

PAGE = "sharing.md"

Block = Mapping[str, Any]

_HEAD = """<!-- Made by `make docs` from the model; a test compares. -->

# Sharing GPUs

A pool declares in one block, `sharing`, how its GPUs are shared; its fields are in
[environment.md](environment.md). The configuration of the device plugin and the MIG manager, node labels,
quotas and the requests of a workload's pods are derived from it. Which kind to choose:
[explanation](../explanation/sharing.md).

| option of a pool | effect |
|---|---|
| `sharing: {kind: mig, devices: [0, 1], ...}` | only these GPUs of a node are partitioned |
| `sharing: {kind: mig, share: {replicas: 2}, ...}` | each slice is time-sliced |
| `sharing: {kind: mig, name: all-3x1g.5gb_2x2g.10gb, ...}` | value of `nvidia.com/mig.config`; \
derived from the layout by default |
| `sharing: {kind: mig, strategy: single, ...}` | the pool's own strategy instead of \
`gpu_operator.mig_strategy`; an MPS pool has `none`, so MPS can be beside `mixed` |
| `gpu: {memory_gib: 40, nvlink: true, compute: "8.0", count: 8}` | GPUs by attributes instead of `machine`: \
all models that match (on AWS those that EC2 sells); \
existing clusters and own hosts name their `models`, OpenStack a `machine` |
"""

_KINDS: Mapping[str, Block] = {
    "`exclusive`": {"kind": "exclusive"},
    "`time_slicing`": {"kind": "time_slicing", "replicas": 4},
    "`mps`": {"kind": "mps", "replicas": 4},
    "`mig`": {"kind": "mig"},
    "`mig`, `share`": {"kind": "mig", "share": {"replicas": 2}},
    "`dra`": {"kind": "dra"},
}
_CERN = {"3g.20gb": 1, "2g.10gb": 2}
_SEVEN = "all-1g.5gb"
_EXAMPLE = "g4.p2.40g"
"""Two A100 40GB on a node, so that figures per node differ from figures per GPU."""
_ANY_WAY = "A100-PCIE-40GB"
"""Supports every kind of sharing, so a refusal of its pool has another reason than the GPU."""
_EXAMPLES: tuple[tuple[str, Block], ...] = (
    ("kind: exclusive", {"kind": "exclusive"}),
    ("kind: time_slicing, replicas: 4", {"kind": "time_slicing", "replicas": 4}),
    (
        "kind: time_slicing, replicas: 4, rename: false",
        {"kind": "time_slicing", "replicas": 4, "rename": False},
    ),
    ("kind: mps, replicas: 4", {"kind": "mps", "replicas": 4}),
    ("kind: mig, layout: {3g.20gb: 1, 2g.10gb: 2}", {"kind": "mig", "layout": _CERN}),
    ("kind: mig, layout: all-1g.5gb", {"kind": "mig", "layout": _SEVEN}),
    (
        "kind: mig, layout: all-1g.5gb, strategy: single",
        {"kind": "mig", "layout": _SEVEN, "strategy": "single"},
    ),
    ("kind: mig, layout: all-1g.5gb, devices: [0]", {"kind": "mig", "layout": _SEVEN, "devices": [0]}),
    (
        "kind: mig, layout: all-1g.5gb, share: {replicas: 2}",
        {"kind": "mig", "layout": _SEVEN, "share": {"replicas": 2}},
    ),
    ("kind: dra", {"kind": "dra"}),
    ("kind: dra, layout: all-1g.5gb", {"kind": "dra", "layout": _SEVEN}),
)


def page() -> str:
    """The whole page in Markdown, the same bytes every time."""
    return "\n".join([_HEAD, *_matrix(), *_slices(), *_offers()]) + "\n"


class _Notes:
    """Footnotes of a table: each reason once, numbered in order of use."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def mark(self, reason: str) -> str:
        return f"<sup>{self._known.setdefault(reason, len(self._known) + 1)}</sup>"

    def lines(self) -> Iterator[str]:
        for reason, number in self._known.items():
            yield f"{number}. {reason[0].upper()}{reason[1:]}."


def _matrix() -> Iterator[str]:
    notes = _Notes()
    yield from ("## Kinds of sharing by GPU", "")
    yield "`trust: multi` means that a pool serves owners who do not trust each other."
    yield from ("", f"| GPU | memory | {' | '.join(_KINDS)} |", f"|---|---|{'---|' * len(_KINDS)}")
    for gpu in GPUS.values():
        cells = [_cell(gpu, block, "single", notes) for block in _KINDS.values()]
        yield f"| {gpu.name} | {gpu.memory_mib / 1024:.0f} GiB | {' | '.join(cells)} |"
    trusted = [_cell(GPUS[_ANY_WAY], block, "multi", notes) for block in _KINDS.values()]
    yield f"| with `trust: multi` | | {' | '.join(trusted)} |"
    yield from ("", *notes.lines(), "")


def _cell(gpu: Gpu, block: Block, trust: str, notes: _Notes) -> str:
    refused = _refusal(gpu, block, trust)
    if refused:
        reason = refused.fact.replace(gpu.name, "the GPU").removesuffix(", and trust is multi")
        return f"no{notes.mark(reason)}"
    geometry = gpu.geometry if block["kind"] == "mig" else None
    return f"yes, {_at_most(geometry)}" if geometry and trust == "single" and "share" not in block else "yes"


def _refusal(gpu: Gpu, block: Block, trust: str) -> InputError | None:
    """The model's error for such a pool; None if it is valid."""
    layout = {"layout": _smallest(gpu.geometry)} if block["kind"] == "mig" else {}
    choice = {"models": [gpu.name], "count": 1}
    pool = {
        "name": "p",
        "gpu": choice,
        "selector": {"a": "b"},
        "trust": trust,
        "sharing": {**block, **layout},
    }
    try:
        parse({"name": "e", "cluster": {"kind": "existing", "kubeconfig": "k"}, "pools": [pool]})
    except InputError as error:
        return error
    return None


def _smallest(geometry: Geometry | None) -> str:
    return f"all-{geometry.profiles[0].name}" if geometry else _SEVEN


def _at_most(geometry: Geometry) -> str:
    return f"{geometry.most(geometry.profiles[0].name)} slices"


def _slices() -> Iterator[str]:
    found: dict[int, list[Gpu]] = {}
    for gpu in GPUS.values():
        if gpu.geometry:
            found.setdefault(id(gpu.geometry), []).append(gpu)
    yield from ("## MIG slices", "")
    yield from (
        "A GPU has compute slices and memory slices, and a profile takes some of both. So two `3g.20gb` take",
        "all eight memory slices of an A100, and leave one compute slice that cannot be used. Each profile",
        "can start only at certain memory slices: with other slices in use, enough may be free, but none at",
        "a valid start. Under the strategy `mixed` each profile is a resource of its own.",
        "",
        "| GPU | profile | compute slices | memory slices | at most | resource |",
        "|---|---|---|---|---|---|",
    )
    for gpus in found.values():
        yield from _profiles(gpus)
    yield ""


def _profiles(gpus: list[Gpu]) -> Iterator[str]:
    geometry = gpus[0].geometry
    assert geometry is not None
    names = "<br>".join(gpu.name for gpu in gpus)
    for profile in geometry.profiles:
        compute, memory = f"{profile.compute} of {geometry.compute}", f"{profile.memory} of {geometry.memory}"
        if profile.memory_mib:
            memory += f" ({profile.memory_mib / 1024:g} GiB)"
        name, most = profile.name, geometry.most(profile.name)
        yield f"| {names} | `{name}` | {compute} | {memory} | {most} | `{offer.mig_resource(name)}` |"
        names = ""


def _offers() -> Iterator[str]:
    yield from ("## What a node offers, and what a pod requests", "")
    yield from (
        "For a node with two A100 40GB, under the operator's strategy `mixed`. A workload names its pool,",
        "and a slice if the pool has several; gpuform writes the rest. Other pods need the requests shown",
        "here, and a toleration of the GPU taint.",
        "",
        "| sharing | a node offers | a pod requests, for example | `nvidia.com/gpu.product` |",
        "|---|---|---|---|",
    )
    for title, block in _EXAMPLES:
        yield f"| `{title}` | {' | '.join(_offer(block))} |"


def _offer(block: Block) -> Iterable[str]:
    pool = {"name": "p", "machine": _EXAMPLE, "nodes": 1, "sharing": block}
    work = {"name": "w", "kind": "pod", "pool": "p", "image": "a:1"}
    if isinstance(block.get("layout"), dict):
        work["slice"] = next(iter(block["layout"]))
    elif "devices" in block:
        work["slice"] = block["layout"].removeprefix("all-")
    env = parse({"name": "e", "cluster": {"kind": "embedded"}, "pools": [pool], "workloads": [work]})
    (made,) = env.pools
    offered = {**sharing.offered(env, made), **offer.claimable(made)}
    products = offer.products(env.strategy(made), made)
    each = offer.mps_memory_mib(made)
    memory = f", {each} MiB each" if each else ""
    yield "<br>".join(f"`{name}`: {count}{memory}" for name, count in offered.items())
    yield "<br>".join(_asked(workloads.manifests(env)))
    yield f"`{products[0]}`" if products else "no product label to select by: allocated by claim"


def _asked(manifests: Iterable[Block]) -> Iterator[str]:
    for one in manifests:
        if one["kind"] == "ResourceClaimTemplate":
            (request,) = one["spec"]["spec"]["devices"]["requests"]
            yield f"a claim of `{request['exactly']['deviceClassName']}`"
        if one["kind"] == "Pod":
            limits = one["spec"]["containers"][0]["resources"]["limits"]
            yield from (f"`{name}: {count}`" for name, count in limits.items() if "nvidia" in name)


if __name__ == "__main__":
    (Path(sys.argv[1]) / PAGE).write_text(page(), encoding="utf-8")
