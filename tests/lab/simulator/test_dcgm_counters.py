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
from lab.simulator.dcgm.counters import CountersError
from lab.simulator.dcgm.fields import DEFAULT, KNOWN, NOT_PLAYED, Counter
from lab.simulator.dcgm.operand import asked, wrong
from tests.external import reference
from tests.lab.simulator.scraping import Bench

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


def test_blanks_comments_and_empty_lines_are_nothing() -> None:
    text = "# ours\n\nDCGM_FI_DEV_DEC_UTIL ,     gauge, Decoder (in %).\n# DCGM_FI_X, gauge, y\n"
    assert counters.read(text) == (Counter("DCGM_FI_DEV_DEC_UTIL", "gauge", "Decoder (in %)."),)


def test_what_an_environment_may_ask_for_is_taken() -> None:
    """Some fields have no series: only those in the exporter's own files are simulated."""
    text = "".join(f"{name}, {field.type}, {field.help}\n" for name, field in FIELDS.items())
    found = {counter.name for counter in counters.read(text)}
    assert found == KNOWN
    assert set(FIELDS) == KNOWN | NOT_PLAYED


def test_a_quoted_help_may_hold_a_comma() -> None:
    (counter,) = counters.read('DCGM_FI_DEV_GPU_TEMP, gauge, "hot, or not"\n')
    assert counter.text == "hot, or not"


WRONG = {
    "an unknown field": (
        "DCGM_FI_DEV_GPU_TEMP, gauge, x\nDCGM_FI_DEV_GPU_TEMPERATURE, gauge, x\n",
        "could not find DCGM field; err: unknown ExporterCounter field 'DCGM_FI_DEV_GPU_TEMPERATURE'",
    ),
    "a comma too many": ("DCGM_FI_DEV_GPU_TEMP, gauge, hot, or not\n", "expected 3 fields"),
    "a column too few": ("DCGM_FI_DEV_GPU_TEMP, gauge\n", "expected 3 fields"),
    "an unknown type": (
        "DCGM_FI_DEV_GPU_TEMP, gage, x\n",
        "could not find Prometheus metric type 'gage'",
    ),
    "nothing": ("# nothing\n", "no metrics found"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_the_exporters_words(case: str) -> None:
    text, said = WRONG[case]
    with pytest.raises(CountersError, match=re.escape(said)):
        counters.read(text)


def exporter(world: Any, **fields: Any) -> Any:
    (pod,) = world.of("dcgm-exporter")
    pod.template = replace(pod.template, config_map="counters")
    for name, value in fields.items():
        setattr(pod, name, value)
    return pod


def maps(text: str, key: str = "dcgm-metrics.csv") -> dict[tuple[str, str], dict[str, str]]:
    return {("gpu-operator", "counters"): {key: text}}


@pytest.mark.parametrize("key", ["dcgm-metrics.csv", "metrics"])
def test_the_csv_is_that_of_the_mounted_configmap(make_world: Any, key: str) -> None:
    pod = exporter(make_world())
    assert [c.name for c in asked(pod, maps("DCGM_FI_DEV_GPU_TEMP, gauge, x\n", key))] == [
        "DCGM_FI_DEV_GPU_TEMP"
    ]
    assert wrong(pod, maps("DCGM_FI_DEV_GPU_TEMP, gauge, x\n", key)) is None


@pytest.mark.parametrize("start", ["waits", "granted"])
def test_an_unknown_field_makes_the_exporter_crash_loop(make_world: Any, start: str) -> None:
    world = make_world()
    pod = exporter(world, start=start)
    broken = wrong(pod, maps("DCGM_FI_NONSENSE, gauge, x\n"))
    assert broken is not None
    world.configs[pod.uid] = broken
    crashes = [action for action in operands.act(world) if isinstance(action, Crash)]
    assert [(crash.pod.name, crash.container) for crash in crashes] == [("dcgm-exporter-1", "dcgm-exporter")]
    assert "DCGM_FI_NONSENSE" in crashes[0].message

    pod.start, pod.crash = "granted", crashes[0].message
    assert not any(isinstance(action, Crash) for action in operands.act(world))
    del world.configs[pod.uid]
    assert [type(action) for action in operands.act(world)] == [Recover]


def test_without_a_driver_it_does_not_start_and_one_that_runs_keeps_it(make_world: Any) -> None:
    world = make_world(operands=("dcgm-exporter",))
    (pod,) = world.of("dcgm-exporter")
    assert operands.act(world) == []
    pod.start = "waits"
    (crash,) = operands.act(world)
    assert isinstance(crash, Crash)
    assert "no driver on this node" in crash.message


def test_a_configmap_that_is_not_there_cannot_be_mounted(make_world: Any) -> None:
    world = make_world()
    pod = exporter(world, start="waits", phase="Pending", ready=False)
    broken = wrong(pod, {})
    assert broken is not None
    world.configs[pod.uid] = broken
    (event,) = (action for action in operands.act(world) if isinstance(action, Event))
    assert (event.reason, '"counters" not found' in event.message) == ("FailedMount", True)
    pod.start = "granted"  # mounted files stay
    assert wrong(pod, {}) is None


def test_a_scrape_has_what_the_csv_asks_for_in_its_order(make_world: Any) -> None:
    world = make_world()
    exporter(world)
    bench = Bench(world)
    bench.store.config_maps |= maps(
        "DCGM_FI_DEV_POWER_USAGE, gauge, watts\nDCGM_FI_DEV_GPU_TEMP, gauge, degrees\n"
        "DCGM_FI_DRIVER_VERSION, label, version\n"
    )
    lines = bench.scrape().text.splitlines()
    assert [line.split("{")[0] for line in lines] == [
        "# HELP DCGM_FI_DEV_POWER_USAGE watts",
        "# TYPE DCGM_FI_DEV_POWER_USAGE gauge",
        "DCGM_FI_DEV_POWER_USAGE",
        "# HELP DCGM_FI_DEV_GPU_TEMP degrees",
        "# TYPE DCGM_FI_DEV_GPU_TEMP gauge",
        "DCGM_FI_DEV_GPU_TEMP",
    ]
    bench.store.config_maps |= maps("DCGM_FI_DEV_SM_CLOCK, gauge, edited\n")
    assert bench.scrape().names == {"DCGM_FI_DEV_SM_CLOCK"}
    bench.store.config_maps |= maps("nonsense\n")
    assert bench.exporters.scrape("node-0")[0] == 503
