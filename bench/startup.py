"""Cold start to the first Running pod, restart, and memory: ours beside bare ``kwokctl create cluster``.

    python bench/startup.py [RUNS]

Both use the same binaries in the same run, alternating. Ours serves TLS with RBAC and includes the simulator;
bare kwokctl gets ``--secure-port --kube-authorization`` so that it does the same work. Published for whole
start-ups elsewhere (minikube's benchmark, 2025, to DNS and an app): k3d 19.9 s, kind 33.0 s.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gpuform.checkout.paths import Paths
from infra import versions
from lab.plane import ControlPlane
from lab.plane.kwokctl import BINARIES
from lab.toolchain import Toolchain

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "bench",
        "annotations": {
            "kwok.x-k8s.io/node": "fake",
            "simulator.gpuform.io/cpu": "8",
            "simulator.gpuform.io/memory": "32Gi",
            "simulator.gpuform.io/pods": "110",
        },
    },
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "first", "namespace": "default"},
    "spec": {"containers": [{"name": "first", "image": "none"}], "tolerations": [{"operator": "Exists"}]},
}
HERE = Paths.here()
TOOLS = Toolchain(HERE)


def first_pod(kubectl: Callable[..., str]) -> None:
    """Apply a node and a pod, retrying until the service account exists, and wait until the pod runs."""
    manifests = "\n".join(json.dumps(manifest) for manifest in (NODE, POD))
    while kubectl("apply", "-f", "-", input=manifests, check=False) is None:
        time.sleep(0.05)
    while kubectl("get", "pod", "first", "-o", "jsonpath={.status.phase}") != "Running":
        time.sleep(0.05)


def kubectl_with(kubeconfig: Path) -> Callable[..., str]:
    """kubectl on one cluster; with ``check=False`` None instead of an error."""

    def run(*args: str, input: str | None = None, check: bool = True) -> str | None:
        command = [str(TOOLS.path("kubectl")), "--kubeconfig", str(kubeconfig), *args]
        result = subprocess.run(command, input=input, capture_output=True, text=True)
        if result.returncode and check:
            raise SystemExit(result.stderr)
        return result.stdout if not result.returncode else None

    return run  # type: ignore[return-value]


def measure_ours(folder: Path) -> dict[str, float]:
    plane = ControlPlane(Paths(root=HERE.root, state=folder, cache=HERE.cache), TOOLS)
    try:
        began = time.monotonic()
        plane.start()
        first_pod(kubectl_with(folder / "kubeconfig"))
        figures = {"first pod s": time.monotonic() - began}
        members = plane.status().members
        figures |= {f"{member.name} MiB": member.rss_bytes / 2**20 for member in members}
        figures["all MiB"] = sum(m.rss_bytes for m in members) / 2**20
        plane.stop()
        began = time.monotonic()
        plane.start()
        figures["restart s"] = time.monotonic() - began
        return figures
    finally:
        plane.stop(delete=True)


def measure_bare(folder: Path) -> dict[str, float]:
    """The same figures of a cluster that kwokctl creates by itself from the same binaries."""
    env = {**os.environ, "KWOK_WORKDIR": str(folder), "KWOK_KUBE_VERSION": f"v{versions.KUBERNETES}"}
    env |= {variable: str(TOOLS.path(name)) for name, variable in BINARIES.items()}
    env["KWOK_KUBECTL_BINARY"] = str(TOOLS.path("kubectl"))
    kubeconfig = folder / "kubeconfig"

    def kwokctl(*args: str) -> None:
        command = [str(TOOLS.path("kwokctl")), "--name", "bench", *args]
        result = subprocess.run(command, env=env, capture_output=True, text=True)
        if result.returncode:
            raise SystemExit(f"kwokctl {args[0]}: {result.stderr}")

    try:
        began = time.monotonic()
        secure = ["--secure-port", "--kube-authorization"]
        kwokctl(
            "create",
            "cluster",
            "--runtime",
            "binary",
            "--wait",
            "60s",
            *secure,
            "--kubeconfig",
            str(kubeconfig),
        )
        first_pod(kubectl_with(kubeconfig))
        figures = {"first pod s": time.monotonic() - began, "all MiB": _resident(folder)}
        kwokctl("stop", "cluster")
        began = time.monotonic()
        kwokctl("start", "cluster", "--wait", "60s")
        figures["restart s"] = time.monotonic() - began
        return figures
    finally:
        kwokctl("delete", "cluster", "--kubeconfig", str(kubeconfig))


def _resident(folder: Path) -> float:
    """MiB of all processes with ``folder`` in their command line."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "cmdline").read_bytes():
                total += int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue  # it ended meanwhile
    return total / 2**20


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    results: Mapping[str, list[dict[str, float]]] = {"ours": [], "bare": []}
    for _ in range(runs):
        for name, start in (("bare", measure_bare), ("ours", measure_ours)):
            with tempfile.TemporaryDirectory() as folder:
                results[name].append(start(Path(folder)))
    print(
        f"{'figure':28} {'ours':>8} {'min':>8} {'max':>8} {'kwokctl':>8}  ours/kwokctl ({runs} runs, medians)"
    )
    for figure in results["ours"][0]:
        own_median = [run[figure] for run in results["ours"]]
        peer_median = [run[figure] for run in results["bare"] if figure in run]
        middle = statistics.median(own_median)
        line = f"{figure:28} {middle:8.2f} {min(own_median):8.2f} {max(own_median):8.2f}"
        if peer_median:
            line += f" {statistics.median(peer_median):8.2f}  {middle / statistics.median(peer_median):.2f}x"
        print(line)


if __name__ == "__main__":
    main()
