"""Predicted times of batches against ParvaGPU's measurements: fitted on one half, compared with the other."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median

import pytest

from infra.model.base.errors import InputError
from infra.planner.latency import FEWEST, Setting, predicted

pytestmark = pytest.mark.unit

PARVAGPU = Path(__file__).parents[3] / "shared" / "traces" / "parvagpu"
SLICES = {"1": 7, "2": 3, "3": 2, "4": 1, "7": 1}
"""Instances of each size on one A100."""
Rows = list[tuple[Setting, float]]


def networks() -> Iterator[Rows]:
    """Settings of each network with seconds of a batch."""
    for file in sorted(PARVAGPU.glob("*.csv")):
        if "_S1-S4" not in file.name:
            yield [
                (Setting(f"{row['Mig instance']}g", batch, float(row["Workload Number"])), batch / rate)
                for row in csv.DictReader(file.open())
                if (rate := float(row["Throughput"])) and (batch := float(row["Batch size"]))
            ]


@pytest.mark.skipif(not PARVAGPU.exists(), reason="ParvaGPU's measurements are not in the project")
def test_half_of_the_measurements_predict_the_other_half_and_the_best_instance() -> None:
    """Median error at most 10 %; the instance and processes chosen lose at most 3 % of throughput."""
    errors, regrets = [], []
    for rows in networks():
        shuffled = random.Random(0).sample(rows, len(rows))
        half, rest = shuffled[: len(rows) // 2], shuffled[len(rows) // 2 :]
        guessed = predicted(half, [setting for setting, _ in rest], "rows")
        errors += [abs(time / guess - 1) for (_, time), guess in zip(rest, guessed, strict=True)]
        believed = dict(half) | dict(zip((setting for setting, _ in rest), guessed, strict=True))
        for batch in (1, 2, 4, 8, 16, 32, 64, 128):
            speeds = {
                one: (throughput(one, believed[one]), throughput(one, time))
                for one, time in rows
                if one.batch == batch
            }
            chosen = max(speeds.values())[1]
            regrets.append(1 - chosen / max(speed for _, speed in speeds.values()))
    assert len(regrets) == 88
    assert median(errors) <= 0.1
    assert mean(regrets) <= 0.03


def throughput(setting: Setting, time: float) -> float:
    """Batches per second of a GPU that is cut into such instances only."""
    return SLICES[setting.part[0]] * setting.processes / time


@pytest.mark.parametrize(("parts", "batches"), [(3, 3), (2, 9)])
def test_too_few_measurements_are_refused(parts: int, batches: int) -> None:
    rows = [
        (Setting(f"{part}g", float(batch), 1.0), batch / part)
        for part in range(1, parts + 1)
        for batch in range(1, batches + 1)
    ]
    with pytest.raises(InputError) as caught:
        predicted(rows, [rows[0][0]], "m.csv")
    fact = f"m.csv: holds {parts * batches} measurements on {parts} parts; give {FEWEST} or more, on 3 parts"
    assert str(caught.value).startswith(fact)
