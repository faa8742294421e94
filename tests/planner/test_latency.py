"""Predicted times of batches against ParvaGPU's measurements: fitted on one half, compared with the other."""

from __future__ import annotations

import csv
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import mean, median

import pytest

from infra.model.base.errors import InputError
from infra.planner.latency import FEWEST, MARGIN, Setting, predicted

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


def limits() -> Iterator[tuple[float, ...]]:
    """For each network none, and half of ParvaGPU's latency targets in seconds: of S2, and of S3 and S4."""
    rows = csv.reader((PARVAGPU / "slo_latency_ms_S1-S4.csv").open())
    for _, *targets, _ in zip(*rows, strict=True):
        yield math.inf, *(float(target) / 2000 for target in targets)


@pytest.mark.skipif(not PARVAGPU.exists(), reason="ParvaGPU's measurements are not in the project")
@pytest.mark.parametrize("seed", range(4))
def test_half_of_the_measurements_predict_the_other_half_and_the_best_instance(seed: int) -> None:
    """Median error at most 10 %; the instance and processes chosen lose at most 3 % of throughput.

    They keep each latency, by what was measured, since predicted times count longer.
    """
    errors, regrets = [], defaultdict[int, list[float]](list)
    for rows, allowed in zip(networks(), limits(), strict=True):
        shuffled = random.Random(seed).sample(rows, len(rows))
        half, rest = shuffled[: len(rows) // 2], shuffled[len(rows) // 2 :]
        guessed = predicted(half, [setting for setting, _ in rest], "rows")
        errors += [abs(time / guess - 1) for (_, time), guess in zip(rest, guessed, strict=True)]
        guesses = dict(zip((setting for setting, _ in rest), guessed, strict=True))
        believed, real = dict(half) | guesses, dict(rows)
        longest = dict(half) | {one: time * MARGIN for one, time in guesses.items()}
        for batch, (number, limit) in product((1, 2, 4, 8, 16, 32, 64, 128), enumerate(allowed)):
            kept = [one for one in real if one.batch == batch and longest[one] <= limit]
            if not kept:
                continue
            chosen = max(kept, key=lambda one: throughput(one, believed[one]))
            assert real[chosen] <= limit
            speeds = [throughput(one, time) for one, time in rows if one.batch == batch and time <= limit]
            regrets[number].append(1 - throughput(chosen, real[chosen]) / max(speeds))
    assert len(regrets[0]) == 88
    assert min(map(len, regrets.values())) > 80
    assert median(errors) <= 0.1
    assert max(map(mean, regrets.values())) <= 0.03


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
