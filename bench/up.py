"""``pulumi up`` and a preview without changes for 10, 100 and 1000 simulated nodes, beside kubectl.

    python bench/up.py [NODES ...]

The stack has one pool of that many time-sliced T4 nodes, and what every stack has. The peer is ``kubectl
apply --server-side`` of the same manifests on an equal control plane; it keeps no state, waits for nothing
and installs no chart.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from gpuform.checkout.paths import Paths
from gpuform.engine import Engine
from infra.config import load
from infra.plan.render import render
from lab.plane import ControlPlane
from lab.toolchain import Toolchain

HERE = Paths.here()


def stack(nodes: int) -> str:
    shared = {"kind": "time_slicing", "replicas": 4}
    environment = {
        "name": "bench",
        "cluster": {"kind": "embedded"},
        "pools": [
            {"name": "t4", "machine": "g2.5xlarge", "nodes": nodes, "sharing": shared},
            {"name": "cpu", "machine": "m6i.xlarge", "nodes": 1},
        ],
    }
    return yaml.safe_dump({"config": {"gpuform:environment": environment}})


def measure(nodes: int, folder: Path) -> None:
    root = folder / "checkout"
    shutil.copytree(HERE.root, root, ignore=shutil.ignore_patterns(".git", ".gpuform", ".venv", "*_cache"))
    (root / ".venv").symlink_to(HERE.root / ".venv")
    (root / "Pulumi.local.yaml").write_text(stack(nodes))
    paths = Paths(root=root, state=folder / "state", cache=HERE.cache)
    tools = Toolchain(paths)
    plane = ControlPlane(paths, tools)
    try:
        plane.start()
        peer = _kubectl(paths, tools, render(load(root / "Pulumi.local.yaml")))
        plane.stop(delete=True)
        plane.start()
        engine = Engine(paths, tools, say=lambda line: None)
        up = engine.up("local", on_event=lambda event: None)
        preview = engine.preview("local", on_event=lambda event: None)
        if preview.changed:
            raise SystemExit(f"the preview is not empty: {preview.summary}")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        rss = sum(member.rss_bytes for member in plane.status().members) / 2**20
        line = f"{nodes:6} {up.duration_s:8.1f} {preview.duration_s:10.1f} {peer:10.1f}"
        print(f"{line} {up.duration_s / peer:9.1f}x {peak:13.0f} {rss:14.0f}", flush=True)
    finally:
        plane.stop(delete=True)


def _kubectl(paths: Paths, tools: Toolchain, files: dict[str, str]) -> float:
    text = "\n".join(files[name] for name in ("namespaces.yaml", "sharing.yaml", "nodes.yaml"))
    command = [
        str(tools.path("kubectl")),
        "--kubeconfig",
        str(paths.kubeconfig),
        "apply",
        "--server-side",
        "-f",
        "-",
    ]
    began = time.monotonic()
    subprocess.run(command, input=text, text=True, check=True, capture_output=True)
    return time.monotonic() - began


def main() -> None:
    sizes = [int(arg) for arg in sys.argv[1:]] or [10, 100, 1000]
    columns = f"{'nodes':>6} {'up s':>8} {'no-op s':>10} {'kubectl s':>10} {'up/kubectl':>10}"
    print(f"{columns} {'largest MiB':>13} {'plane MiB':>14}")
    for nodes in sizes:
        with tempfile.TemporaryDirectory() as folder:
            measure(nodes, Path(folder))


if __name__ == "__main__":
    main()
