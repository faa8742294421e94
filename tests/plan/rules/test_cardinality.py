"""How many series the rules record: bounded by GPUs, slices and pods, whatever labels an exporter adds.

A real Prometheus scrapes a small version of the fleet of ``bench/metrics.py`` and evaluates the rules
every second.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest
import yaml

from infra.plan import scraping
from infra.plan.rules import groups
from lab.toolchain import Toolchain
from tests.plan.rules.scraped import Fleet, Prometheus, environment, running

pytestmark = [pytest.mark.engine, pytest.mark.nightly]
GPU = {"node", "pool", "gpu", "UUID", "modelName"}
INSTANCE = {"GPU_I_ID", "GPU_I_PROFILE"}
LABELS = {
    "device": GPU | INSTANCE | {"sharing", "resource"},
    "fault": {"node", "pool", "gpu", "UUID", "xid", "class", "reason"},
    "gpu": GPU,
    "namespace": {"namespace", "pool", "sharing"},
    "node": {"node", "pool"},
    "nodepool": {"nodepool", "pool", "resource_type"},
    "pod": {"namespace", "pod", "uid", "node", "pool", "sharing", "resource", "reason"},
    "pool": {"pool", "sharing"},
    "resource": {"node", "pool", "sharing", "resource"},
    "rules": set(),
    "unit": {"pool", "sharing", "resource"},
}
"""Labels of recorded series, by the second word of the name: no free text and no addresses."""
PER_GPU, PER_SLICE, PER_POD, PER_NODE, PER_POOL = 4, 3, 4, 24, 40
NODES, GPUS, SLICES = 2, 2, 7


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> list[dict[str, str]]:
    """Labels of every series that the rules record for a small fleet with a pod on each slice."""
    folder = tmp_path_factory.mktemp("fleet")
    fleet = Fleet(NODES, GPUS, SLICES)
    env = environment(fleet)
    rules = folder / "rules.yml"
    rules.write_text(yaml.safe_dump({"groups": [{**group, "interval": "1s"} for group in groups(env)]}))
    ours = [(name, field.type) for name, field in scraping.fields(env).items()]
    with running(toolchain.path("prometheus"), folder / "own", fleet, ours, [rules], seconds=1) as prometheus:
        return _settled(prometheus)


def _settled(prometheus: Prometheus) -> list[dict[str, str]]:
    """Recorded series, once the last rule of the chain (hours) has results and the count is stable."""
    before, deadline = -1, time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [item["metric"] for item in prometheus.query('{__name__=~"gpuform:.+"}')]
        hours = any(entry["__name__"].startswith("gpuform:namespace:gpu_hours_used") for entry in found)
        if hours and len(found) == before:
            return found
        before = len(found)
        time.sleep(2.5)
    raise AssertionError(f"{before} series are recorded after a minute, and it does not settle")


def test_every_label_of_what_is_recorded_is_one_of_few(recorded: list[dict[str, str]]) -> None:
    strange = {
        (item["__name__"], label)
        for item in recorded
        for label in set(item) - {"__name__"} - LABELS[item["__name__"].split(":")[1]]
    }
    assert strange == set()


def test_series_grow_with_gpus_slices_and_pods_and_with_nothing_else(recorded: list[dict[str, str]]) -> None:
    found = Counter(item["__name__"].split(":")[1] for item in recorded)
    slices = NODES * GPUS * SLICES
    assert found["device"] <= PER_SLICE * slices + PER_POOL
    assert found["gpu"] <= PER_GPU * NODES * GPUS
    assert found["pod"] <= PER_POD * slices  # a pod on each slice
    assert found["node"] + found["resource"] <= PER_NODE * NODES
    assert found["fault"] == 0  # nothing is broken
    assert (
        found.total()
        <= (PER_SLICE + PER_POD) * slices + PER_GPU * NODES * GPUS + PER_NODE * NODES + 2 * PER_POOL
    )


def test_the_counters_of_an_exporter_are_the_declared_ones() -> None:
    """Scraped series are bounded, too: by fields times devices."""
    fields = scraping.fields(environment(Fleet(NODES, GPUS, SLICES)))
    assert len([item for item in fields.values() if item.type != "label"]) <= 60
