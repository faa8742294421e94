"""Prometheus with 1000 GPUs of 7 slices: ours beside dcgm-exporter's default counters without rules.

    python -m bench.metrics [NODES] [SECONDS]

Two real Prometheus, one after the other: each scrapes every node's exporter (8 A100 80 GB of 7 slices, a pod
on each slice) every 15 s. The peer gets the counters that dcgm-exporter exports by default, and no rules;
ours gets the counters and the rules that the stack makes for such a pool. Both read the same state of the
cluster. The exporters are this program's: names, labels and values as the simulator models them.
kube-state-metrics has only what our rules read; a real one has more, for both alike.

The second table queries the same figures over the whole run, once from recorded and once from scraped series,
as a dashboard without recording rules would: the latter needs the pod labels of DCGM's series, which these
slices have and time-sliced GPUs do not.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import yaml

from gpuform.checkout.paths import Paths
from infra.plan import scraping
from infra.plan.rules import groups
from lab.simulator.counters import DEFAULT
from lab.toolchain import Toolchain
from tests.plan.rules.scraped import INTERVAL_S, RESOURCE, Fleet, Prometheus, environment, running

HERE = Paths.here()
GPUS, SLICES = 8, 7
QUERIES = {
    "GPUs in use by namespace": (
        "sum by (namespace) (gpuform:namespace:gpus_used)",
        f'sum by (namespace) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{{namespace!=""}}) / {SLICES}',
    ),
    "GPUs asked for by namespace": (
        "sum by (namespace) (gpuform:namespace:gpus_requested)",
        (
            f'sum by (namespace) (kube_pod_container_resource_requests{{resource="{RESOURCE}"}} and '
            f'on (namespace,pod) (kube_pod_status_phase{{phase=~"Pending|Running"}} == 1)) / {SLICES}'
        ),
    ),
    "memory in use by pool": (
        "sum by (pool) (gpuform:device:memory_used_bytes)",
        (
            "sum by (label_gpuform_io_pool) (DCGM_FI_DEV_FB_USED * on (node) "
            "group_left (label_gpuform_io_pool) kube_node_labels) * 1024 * 1024"
        ),
    ),
}
ROUNDS = 7
WAIT_S = 240


def measure(prometheus: Prometheus, seconds: float) -> dict[str, float]:
    """Figures at the end of a run; rates over its second half, when all series exist."""
    time.sleep(seconds / 2)
    _wait_for_rules(prometheus)
    names = ("prometheus_tsdb_head_samples_appended_total", "process_cpu_seconds_total")
    before, began = prometheus.own(*names), time.monotonic()
    time.sleep(seconds / 2)
    after, passed = prometheus.own(*names), time.monotonic() - began
    now = prometheus.own(
        "prometheus_tsdb_head_series",
        "process_resident_memory_bytes",
        "prometheus_rule_group_last_duration_seconds",
        "prometheus_rule_group_iterations_missed_total",
        "prometheus_rule_evaluation_failures_total",
    )
    up = prometheus.query("count(up == 1)")
    return {
        "targets that answer": float(up[0]["value"][1]) if up else 0.0,
        "series": now["prometheus_tsdb_head_series"],
        "samples per second": (after[names[0]] - before[names[0]]) / passed,
        "CPU, share of a core": (after[names[1]] - before[names[1]]) / passed,
        "resident memory MiB": now["process_resident_memory_bytes"] / 2**20,
        "one evaluation of all rules s": now["prometheus_rule_group_last_duration_seconds"],
        "evaluations missed": now["prometheus_rule_group_iterations_missed_total"],
        "evaluations failed": now["prometheus_rule_evaluation_failures_total"],
        "recorded series": _count(prometheus, '{__name__=~"gpuform:.+"}'),
        "alerts' series": _count(prometheus, '{__name__=~"ALERTS.*"}'),
    }


def _wait_for_rules(prometheus: Prometheus) -> None:
    deadline = time.monotonic() + WAIT_S
    while prometheus.rules() and not _count(prometheus, "gpuform:namespace:gpus_used"):
        if time.monotonic() > deadline:
            raise SystemExit(f"the rules are not through after {WAIT_S} s: the machine is too busy")
        time.sleep(2)


def slowest(prometheus: Prometheus, count: int = 8) -> None:
    rules = [rule for group in prometheus.rules() for rule in group["rules"]]
    for rule in sorted(rules, key=lambda rule: -rule["evaluationTime"])[:count]:
        print(f"  {rule['name']:42} {rule['evaluationTime'] * 1000:8.0f} ms")


def _count(prometheus: Prometheus, selector: str) -> float:
    samples = prometheus.query(f"count({selector})")
    return float(samples[0]["value"][1]) if samples else 0.0


def query_seconds(prometheus: Prometheus, expression: str, seconds: float) -> tuple[float, float]:
    """Median seconds of a query over the whole run, and the sum of its current values."""
    times = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        prometheus.range(expression, seconds, INTERVAL_S)
        times.append(time.monotonic() - began)
    return statistics.median(times), sum(float(sample["value"][1]) for sample in prometheus.query(expression))


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 125
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 180.0
    fleet = Fleet(nodes, GPUS, SLICES)
    env = environment(fleet)
    binary = Toolchain(HERE).path("prometheus")
    print(
        f"{nodes} nodes, {nodes * GPUS} GPUs, {nodes * GPUS * SLICES} slices; "
        f"load {os.getloadavg()[0]:.1f} before"
    )
    rule_sets = groups(env)
    default = [(counter.name, counter.kind) for counter in DEFAULT]
    own_fields = [(name, field.type) for name, field in scraping.fields(env).items()]
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.yml"
        rules.write_text(yaml.safe_dump({"groups": rule_sets}))
        with running(binary, Path(folder) / "default", fleet, default, ()) as prometheus:
            peer = measure(prometheus, seconds)
        with running(binary, Path(folder) / "ours", fleet, own_fields, [rules]) as prometheus:
            own_figures = measure(prometheus, seconds)
            compare_queries(prometheus, seconds)
            slowest(prometheus)
    print(f"{'':32} {'ours':>12} {'default':>12}  ratio")
    for figure, value in own_figures.items():
        ratio = f"{value / peer[figure]:.2f}" if peer[figure] else "-"
        print(f"{figure:32} {value:12.2f} {peer[figure]:12.2f}  {ratio}")
    count = sum(len(group["rules"]) for group in rule_sets)
    print(f"rules: {count} in {len(rule_sets)} groups, every {INTERVAL_S} s")
    print(f"load {os.getloadavg()[0]:.1f} after")


def compare_queries(prometheus: Prometheus, seconds: float) -> None:
    """The same figures from recorded and from scraped series; they must agree within 5 %."""
    print(f"{'one answer, ms':32} {'recorded':>12} {'scraped':>12}  scraped/recorded")
    for figure, (recorded, scraped) in QUERIES.items():
        fast, recorded_sum = query_seconds(prometheus, recorded, seconds)
        slow, scraped_sum = query_seconds(prometheus, scraped, seconds)
        if abs(recorded_sum - scraped_sum) > 0.05 * scraped_sum:
            raise SystemExit(f"{figure}: {recorded_sum} as recorded, {scraped_sum} as scraped")
        print(f"{figure:32} {fast * 1000:12.1f} {slow * 1000:12.1f}  {slow / fast:.1f}")


if __name__ == "__main__":
    main()
