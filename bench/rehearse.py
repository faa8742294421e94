"""A rehearsal of aws-prod in both ways, and one of 1000 pods: time until all are bound, and memory.

    python -m bench.rehearse [PODS]

The peer is Karpenter's core with its own provider for kwok, which is what `--fast` runs: the ratio says what
the real AWS controller against the played AWS costs on top. Karpenter's own test of that provider allows two
minutes for 1000 pods.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import yaml

from gpuform.paths import Paths
from gpuform.rehearse.options import Options
from gpuform.rehearse.outcome import Outcome
from gpuform.rehearse.run import Rehearsal
from gpuform.toolchain import Toolchain

HERE = Paths.here()
STACK = "aws-prod"
PLACED = "pods placed"


def played(folder: Path, **options: object) -> Outcome:
    paths = Paths(root=HERE.root, state=folder, cache=HERE.cache)
    asked = Options(shrink=False, timeout_s=600, **options)  # type: ignore[arg-type]
    return Rehearsal(paths, Toolchain(paths), STACK, asked, say=lambda line: None).run()


def row(name: str, found: Outcome) -> float:
    """Print one line; seconds until the pods were placed."""
    steps = {step.name: step.seconds for step in found.steps}
    memory = sum(found.rss_bytes.values()) / 2**20
    buyer = sum(size for name, size in found.rss_bytes.items() if "karpenter" in name.lower()) / 2**20
    print(
        f"{name:32} {found.placed:5}/{found.pods:<5} {steps[PLACED]:8.1f} s {sum(steps.values()):8.1f} s "
        f"{sum(pool.nodes for pool in found.pools):6} {memory:7.0f} MiB {buyer:7.0f} MiB"
    )
    return steps[PLACED]


def many(folder: Path, pods: int) -> Path:
    """That many small pods for the pool without GPUs."""
    work = {
        "name": "many",
        "kind": "deployment",
        "replicas": pods,
        "pool": "cpu",
        "cpu": "100m",
        "memory": "64Mi",
        "image": "busybox:1.37",
    }
    file = folder / "workloads.yaml"
    file.write_text(yaml.safe_dump({"workloads": [work]}))
    return file


def main() -> None:
    pods = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"{'':32} {'placed':11} {'bound':>10} {'in all':>10} {'nodes':>6} {'memory':>11} {'Karpenter':>11}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = row(f"{STACK}, AWS controller", played(folder))
        peer = row(f"{STACK}, core with kwok", played(folder, fast=True))
        print(f"{'ratio':32} {'':11} {ours / peer:10.2f}")
        file = many(folder, pods)
        ours = row(f"{pods} pods, AWS controller", played(folder, workloads=file))
        peer = row(f"{pods} pods, core with kwok", played(folder, workloads=file, fast=True))
        print(f"{'ratio':32} {'':11} {ours / peer:10.2f}   (anchor: 120 s for 1000)")


if __name__ == "__main__":
    main()
