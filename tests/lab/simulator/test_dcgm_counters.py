"""The counters' csv is parsed as dcgm-exporter parses it; an error in it makes the exporter crash."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from infra.model.dcgm import FIELDS
from lab.simulator import operands
from lab.simulator.actions import Crash, Event, Recover
from lab.simulator.dcgm import counters
from lab.simulator.dcgm.counters import DEFAULT, KNOWN, NOT_PLAYED, Counter, CountersError, asked, wrong
from tests.external import reference
from tests.lab.simulator.scraping import Bench
from tests.lab.simulator.worlds import make_world

pytestmark = pytest.mark.unit

FILES = ("dcgm/default-counters.csv", "dcgm/dcp-metrics-included.csv")
NAMES = re.compile(r"\bDCGM_\w+")


def names(only_active: bool) -> set[str]:
    """Names in dcgm-exporter's own counter files."""
    lines = [line for file in FILES for line in reference(file).read_text().splitlines()]
    return set(NAMES.findall("\n".join(line for line in lines if not (only_active and line.startswith("#")))))


def test_every_name_is_one_of_the_exporters_own() -> None:
    assert names(only_active=False) >= KNOWN


def test_without_a_csv_the_exporter_serves_what_its_own_file_lists() -> None:
    assert {counter.name for counter in DEFAULT} == names(only_active=True)


def test_the_exporters_own_files_can_be_read() -> None:
    for file in FILES:
        found = counters.read(reference(file).read_text())
        assert {counter.name for counter in found} == {counter.name for counter in DEFAULT}


def test_what_an_environment_may_ask_for_is_taken() -> None:
    """Some fields have no series: only those in the exporter's own files are simulated."""
    text = "".join(f"{name}, {field.type}, {field.help}\n" for name, field in FIELDS.items())
    found = {counter.name for counter in counters.read(text)}
    assert found == KNOWN
    assert set(FIELDS) == KNOWN | NOT_PLAYED


READ = {
    "# ours\n\nDCGM_FI_DEV_DEC_UTIL ,     gauge, Decoder (in %).\n# DCGM_FI_X, gauge, y\n": "Decoder (in %).",
    'DCGM_FI_DEV_DEC_UTIL, gauge, "hot, or not"\n': "hot, or not",
}


@pytest.mark.parametrize("text", READ)
def test_blanks_comments_and_quotes_are_read(text: str) -> None:
    assert counters.read(text) == (Counter("DCGM_FI_DEV_DEC_UTIL", "gauge", READ[text]),)


UNKNOWN = "could not find DCGM field; err: unknown ExporterCounter field 'DCGM_FI_DEV_GPU_TEMPERATURE'"
WRONG = {
    "DCGM_FI_DEV_GPU_TEMP, gauge, x\nDCGM_FI_DEV_GPU_TEMPERATURE, gauge, x\n": UNKNOWN,
    "DCGM_FI_DEV_GPU_TEMP, gauge, hot, or not\n": "expected 3 fields",
    "DCGM_FI_DEV_GPU_TEMP, gauge\n": "expected 3 fields",
    "DCGM_FI_DEV_GPU_TEMP, gage, x\n": "could not find Prometheus metric type 'gage'",
    "# nothing\n": "no metrics found",
}


@pytest.mark.parametrize("text", WRONG)
def test_an_error_has_the_exporters_words(text: str) -> None:
    with pytest.raises(CountersError, match=re.escape(WRONG[text])):
        counters.read(text)


def exporter(world: Any, csv: str, **fields: Any) -> Any:
    """The exporter's pod with a mounted csv; ``world`` knows what is wrong with it."""
    (pod,) = world.of("dcgm-exporter")
    pod.template = replace(pod.template, config_map="counters")
    for name, value in fields.items():
        setattr(pod, name, value)
    broken = wrong(pod, maps(csv) if csv else {})
    world.configs |= {pod.uid: broken} if broken else {}
    return pod


def maps(text: str, key: str = "dcgm-metrics.csv") -> dict[tuple[str, str], dict[str, str]]:
    return {("gpu-operator", "counters"): {key: text}}


@pytest.mark.parametrize("key", ["dcgm-metrics.csv", "metrics"])
def test_the_csv_is_that_of_the_mounted_configmap(key: str) -> None:
    csv = "DCGM_FI_DEV_GPU_TEMP, gauge, x\n"
    pod = exporter(make_world(), csv)
    assert [counter.name for counter in asked(pod, maps(csv, key))] == ["DCGM_FI_DEV_GPU_TEMP"]
    assert wrong(pod, maps(csv, key)) is None


@pytest.mark.parametrize("start", ["waits", "granted"])
def test_an_unknown_field_makes_the_exporter_crash_loop(start: str) -> None:
    world = make_world()
    pod = exporter(world, "DCGM_FI_NONSENSE, gauge, x\n", start=start)
    (crash,) = [action for action in operands.act(world) if isinstance(action, Crash)]
    assert (crash.pod, crash.container) == (pod, "dcgm-exporter")
    assert "DCGM_FI_NONSENSE" in crash.message
    pod.start, pod.crash = "granted", crash.message
    assert not any(isinstance(action, Crash) for action in operands.act(world))
    del world.configs[pod.uid]
    assert operands.act(world) == [Recover(pod)]


def test_without_a_driver_it_does_not_start_and_one_that_runs_keeps_it() -> None:
    world = make_world(operands=("dcgm-exporter",))
    (pod,) = world.of("dcgm-exporter")
    assert operands.act(world) == []
    pod.start = "waits"
    (crash,) = operands.act(world)
    assert "no driver on this node" in crash.message


def test_a_configmap_that_is_not_there_cannot_be_mounted() -> None:
    world = make_world()
    pod = exporter(world, "", start="waits", phase="Pending", ready=False)
    (event,) = (action for action in operands.act(world) if isinstance(action, Event))
    assert (event.reason, '"counters" not found' in event.message) == ("FailedMount", True)
    pod.start = "granted"  # mounted files stay
    assert wrong(pod, {}) is None


def test_a_scrape_has_what_the_csv_asks_for_in_its_order() -> None:
    csv = (
        "DCGM_FI_DEV_POWER_USAGE, gauge, watts\nDCGM_FI_DEV_GPU_TEMP, gauge, degrees\n"
        "DCGM_FI_DRIVER_VERSION, label, version\n"
    )
    bench = Bench(make_world())
    exporter(bench.world, csv)
    bench.store.config_maps |= maps(csv)
    watts, degrees = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP"
    heads = [
        *(f"# HELP {watts} watts", f"# TYPE {watts} gauge", watts),
        *(f"# HELP {degrees} degrees", f"# TYPE {degrees} gauge", degrees),
    ]
    assert [line.split("{")[0] for line in bench.scrape().text.splitlines()] == heads
    bench.store.config_maps |= maps("DCGM_FI_DEV_SM_CLOCK, gauge, edited\n")
    assert bench.scrape().names == {"DCGM_FI_DEV_SM_CLOCK"}
    bench.store.config_maps |= maps("nonsense\n")
    assert bench.exporters.scrape("node-0")[0] == 503
