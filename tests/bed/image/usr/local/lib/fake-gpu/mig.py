"""MIG of the fake GPUs: modes and instances, kept in a file, placed as a driver would place them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import machine
from machine import Card, Refusal

from lab.simulator.hardware import Mig
from lab.simulator.mig_geometry import DoesNotFit, Placed, place


def mode(card: Card) -> bool | None:
    """Whether MIG is on; None if the GPU does not support it."""
    if card.gpu.mig is None:
        return None
    return bool(machine.read(machine.MIG).get(str(card.index), {}).get("mode"))


def placed(card: Card) -> list[Placed]:
    return [
        (name, start) for name, start in machine.read(machine.MIG).get(str(card.index), {}).get("placed", [])
    ]


def layout(card: Card) -> Counter[str]:
    return Counter(name for name, _ in placed(card))


def switch(card: Card, on: bool) -> None:
    """Set the mode; raises Refusal as the driver does."""
    if card.gpu.mig is None:
        what = f"Unable to enable MIG Mode for GPU {card.bus}: Not Supported"
        raise Refusal(0, f"{what}\nTreating as warning and moving on.")
    if mode(card) != on:
        _keep(card, on, [])


def cut(card: Card, wanted: Mapping[str, int]) -> None:
    mig = _mig(card)
    try:
        _keep(card, True, list(place(mig, {name: count for name, count in wanted.items() if count})))
    except DoesNotFit as error:
        raise Refusal(19, f"Unable to create a GPU instance on GPU {card.index}: {error}") from error


def add(card: Card, names: list[str]) -> None:
    cut(card, layout(card) + Counter(names))


def _mig(card: Card) -> Mig:
    if card.gpu.mig is None or not mode(card):
        raise Refusal(6, f"No MIG-enabled devices found: GPU {card.index}")
    return card.gpu.mig


def _keep(card: Card, on: bool, instances: list[Placed]) -> None:
    state = machine.read(machine.MIG)
    state[str(card.index)] = {"mode": on, "placed": instances}
    machine.write(machine.MIG, state)
