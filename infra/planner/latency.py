"""Time of a batch on parts of a GPU that were not measured, from those that were.

A batch takes the longer of two times, with a smooth transition (exponent k):

    alone  = a + b * batch                                what one process takes however large the part is
    shared = processes * (c + d * batch) / slices ** e    the work of all processes, on the part's slices

Six numbers are fitted to the logarithms of measured times, by Levenberg and Marquardt's method from fixed
starts. Fitted on half of ParvaGPU's measurements (11 networks, each size of an A100's instances, batches of
1 to 256, 1 to 5 processes), it predicts the other half with a median error of about 4 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infra.model.base.errors import InputError
from infra.planner.packing import numeric

FEWEST = 12
"""Measurements for a fit: twice as many as it has numbers."""
FEWEST_PARTS = 3
"""With two, all of the second's speed may be what one process takes on any larger part."""
_STARTS, _STEPS = 4, 60
MARGIN = 1.25
"""By which a predicted time counts longer against a latency. Of the settings chosen on ten random halves of
ParvaGPU's measurements, 4 % take up to 17 % longer than its latency targets allow; with the margin, none."""
WHOLE = "whole"
SMS_IN_MIG_MODE = 98 / 108
"""Of a GPU with seven compute slices [CERN, on an A100]."""


@dataclass(frozen=True)
class Setting:
    """``part``: a MIG profile, or ``whole``, which counts as more than seven slices."""

    part: str
    batch: float
    processes: float

    @property
    def slices(self) -> float:
        return 7 / SMS_IN_MIG_MODE if self.part == WHOLE else float(self.part.partition("g")[0])


def predicted(
    measured: Sequence[tuple[Setting, float]], wanted: Sequence[Setting], subject: str
) -> list[float]:
    """Times of the wanted settings, in the unit of the measured times.

    Raises InputError about ``subject`` if there are too few measurements, or without highspy.
    """
    parts = len({setting.part for setting, _ in measured})
    if len(measured) < FEWEST or parts < FEWEST_PARTS:
        fact = f"holds {len(measured)} measurements on {parts} parts"
        remedy = f"give {FEWEST} or more, on {FEWEST_PARTS} parts or more, to predict others"
        raise InputError(subject, fact, remedy)
    numpy = numeric()
    known = _columns(numpy, [setting for setting, _ in measured])
    times = numpy.log([time for _, time in measured])
    fits = [_fit(numpy, known, times, seed) for seed in range(_STARTS)]
    best = min(fits, key=lambda fit: float(fit[0]))[1]
    return [float(value) for value in numpy.exp(_times(numpy, best, _columns(numpy, wanted)))]


def _columns(numpy: Any, settings: Sequence[Setting]) -> Any:
    return numpy.array([(one.slices, one.batch, one.processes) for one in settings], dtype=float).T


def _times(numpy: Any, fit: Any, settings: Any) -> Any:
    """Logarithms of the times; the first four numbers are logarithms too, so that none is negative."""
    slices, batch, processes = settings
    a, b, c, d = numpy.exp(numpy.clip(fit[:4], -30, 30))
    sharpness = numpy.exp(numpy.clip(fit[5], -5, 3)) + 1
    alone = numpy.log(a + b * batch)
    shared = numpy.log(processes * (c + d * batch)) - fit[4] * numpy.log(slices)
    return numpy.logaddexp(sharpness * alone, sharpness * shared) / sharpness


def _fit(numpy: Any, settings: Any, times: Any, seed: int) -> tuple[float, Any]:
    """Sum of squared errors, and the numbers; ``seed`` decides where the search starts."""
    typical = float(numpy.median(times))
    noise = numpy.random.default_rng(seed).normal(0, 1, 4)
    fit = numpy.append(numpy.array([0.0, -3.0, 0.0, -1.0]) + typical + noise, [0.9, 0.5])
    errors, damping = _times(numpy, fit, settings) - times, 0.01
    for _ in range(_STEPS):
        slope = numpy.empty((len(times), len(fit)))
        for index in range(len(fit)):
            moved = fit.copy()
            moved[index] += 1e-5
            slope[:, index] = (_times(numpy, moved, settings) - times - errors) / 1e-5
        square = slope.T @ slope
        damped = square + damping * numpy.diag(numpy.diag(square) + 1e-9)
        step = numpy.linalg.solve(damped, -slope.T @ errors)
        changed = _times(numpy, fit + step, settings) - times
        if changed @ changed < errors @ errors:
            fit, errors, damping = fit + step, changed, damping / 3
        else:
            damping *= 4
    return float(errors @ errors), fit
