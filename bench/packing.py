"""Pods of several GPUs that fit at 80 and 95 % load, and pods bound per second: ours, default profile.

    python -m bench.packing [ARRIVALS]    # 0: pods bound per second only

A real API server and two real schedulers from the same binary: the cluster's own with kube-scheduler's
default profile, and gpuform-packer as the plan configures it. Nodes are kwok's, 10 of 4 GPUs and 100 of 8.
Both get the same pods in the same order (seeded). Before a pod of n GPUs arrives, random pods are deleted
until all of them together stay within the load: at least n GPUs are free every time, and only their
distribution over the nodes decides whether the pod fits. A pod that does not fit is deleted and counted.

Pods bound per second: 400 pods of one GPU exist before the scheduler is resumed. Anchor: 180 per second,
the threshold of the scheduler's own tests with extended resources, at 5000 nodes on larger machines.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.packing_site import PackingCluster
from gpuform.checkout.paths import Paths
from lab.plane import ControlPlane, sidecars
from lab.plane.layout import Layout
from lab.plane.processes import SECOND_SCHEDULER, scan
from lab.toolchain import Toolchain

SEED = 20261121
SIZES = {1: 50, 2: 25, 4: 15, 8: 10}  # GPUs per pod, and its share in percent
CLUSTERS = ((10, 4), (100, 8))
LOADS = (0.80, 0.95)
PROFILES = {"default": "default-scheduler", "ours": SECOND_SCHEDULER}
MEMBERS = {"default": "kube-scheduler", "ours": SECOND_SCHEDULER}
BURST = 400
ROUNDS = 5  # alternating; the median counts
ANCHOR = 180.0
HERE = Paths.here()


@dataclass
class FitCounts:
    """Pods that arrived and pods that fit, by GPUs per pod."""

    arrived: Counter[int] = field(default_factory=Counter)
    fit: Counter[int] = field(default_factory=Counter)

    def share(self, size: int) -> float | None:
        return self.fit[size] / self.arrived[size] if self.arrived[size] else None


def measure_fit(
    site: PackingCluster, scheduler: str, nodes: int, gpus: int, load: float, arrivals: int
) -> FitCounts:
    """Fill the cluster up to the load, then create ``arrivals`` pods; only these are counted."""
    arrivals_random, deletions_random = random.Random(SEED), random.Random(SEED + 1)
    sizes = [size for size in SIZES if size <= gpus]
    weights = [SIZES[size] for size in sizes]
    running: list[tuple[str, int]] = []
    # The first pods fill the cluster on average, whether they fit or not: the same pods for both.
    mean = sum(size * weight for size, weight in zip(sizes, weights, strict=True)) / sum(weights)
    before = round(1.5 * load * nodes * gpus / mean)
    counts, number = FitCounts(), 0
    while counts.arrived.total() < arrivals:
        (size,) = arrivals_random.choices(sizes, weights)
        while running and sum(gpu_count for _, gpu_count in running) + size > load * nodes * gpus:
            site.delete(running.pop(deletions_random.randrange(len(running)))[0])
        name, number = f"pod-{number}", number + 1
        site.create(name, size, scheduler)
        fits = site.placed(name)
        if fits:
            running.append((name, size))
        else:
            site.delete(name)
        if number > before:
            counts.arrived[size] += 1
            counts.fit[size] += fits
    site.clear()
    return counts


def burst(site: PackingCluster, layout: Layout, profile: str) -> float:
    """Pods bound per second, of those that exist when the scheduler is resumed."""
    (process,) = [process for process in scan(layout) if process.name == MEMBERS[profile]]
    os.kill(process.pid, signal.SIGSTOP)
    try:
        for number in range(BURST):
            site.create(f"pod-{number}", 1, PROFILES[profile])
    finally:
        os.kill(process.pid, signal.SIGCONT)
    began = time.monotonic()
    while site.bound < BURST:
        time.sleep(0.01)
        if time.monotonic() - began > 120:
            raise SystemExit(f"{site.bound} of {BURST} pods are bound after 120 s")
    rate = BURST / (time.monotonic() - began)
    site.clear()
    return rate


@contextmanager
def plane() -> Iterator[tuple[Paths, Layout, Toolchain]]:
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths(root=HERE.root, state=Path(folder).resolve(), cache=HERE.cache)
        tools = Toolchain(HERE)
        cluster = ControlPlane(paths, tools)
        try:
            cluster.start(simulator=False)
            sidecars.ensure_scheduler(Layout(paths), tools)
            yield paths, Layout(paths), tools
        finally:
            cluster.stop(delete=True)


def _line(label: str, ours: float | None, default: float | None, unit: str) -> str:
    if ours is None or default is None:
        return f"{label:44} {'-':>9} {'-':>9}"
    ratio = f"{ours / default:.2f}x" if default else "-"
    scale, sign = (100, " %") if unit == "%" else (1, unit)
    return f"{label:44} {ours * scale:7.1f}{sign} {default * scale:7.1f}{sign}  {ratio}"


def main() -> None:
    arrivals = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    print(f"{'figure':44} {'ours':>9} {'default':>9}  ours/default (load {os.getloadavg()[0]:.1f} before)")
    for nodes, gpus in CLUSTERS:
        with plane() as (paths, layout, tools):
            site = PackingCluster(paths, tools, nodes, gpus)
            try:
                site.wait_for(PROFILES.values())
                for load in LOADS if arrivals else ():
                    counts = {
                        profile: measure_fit(site, scheduler, nodes, gpus, load, arrivals)
                        for profile, scheduler in PROFILES.items()
                    }
                    for size in (4, 8):
                        if size <= gpus:
                            arrived = counts["ours"].arrived[size]
                            label = f"{nodes} x {gpus} at {load:.0%}: {size}-GPU pods that fit, of {arrived}"
                            rates = [counts[profile].share(size) for profile in ("ours", "default")]
                            print(_line(label, *rates, "%"), flush=True)
                if nodes * gpus >= BURST:
                    rounds = [
                        {profile: burst(site, layout, profile) for profile in PROFILES} for _ in range(ROUNDS)
                    ]
                    ours, default = (
                        statistics.median(figures[profile] for figures in rounds)
                        for profile in ("ours", "default")
                    )
                    print(_line(f"{nodes} x {gpus}: pods bound per second", ours, default, "/s"))
                    print(_line(f"{nodes} x {gpus}: the same, beside 180/s", ours, ANCHOR, "/s"))
            finally:
                site.close()
    print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
