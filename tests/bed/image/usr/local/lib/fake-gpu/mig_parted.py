#!/usr/bin/python3
"""Plays nvidia-mig-parted: applies or asserts a configuration, on the fake's own instances."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import machine
import mig
import yaml
from machine import Card, Refusal

from lab.simulator.hardware import device_filter


def wanted(config: dict[str, Any], name: str) -> list[tuple[Card, bool, dict[str, int]]]:
    configs = config.get("mig-configs") or {}
    if config.get("version") != "v1" or not isinstance(configs, dict):
        raise Refusal(1, "error parsing config file: version must be v1, with mig-configs")
    if name not in configs:
        raise Refusal(1, f"error selecting MIG config: selected mig-config not present: {name}")
    cards = {}
    for entry in configs[name]:
        filters = entry.get("device-filter") or []
        filters = [filters] if isinstance(filters, str) else filters
        for card in machine.cards():
            if filters and device_filter(card.device) not in [
                word.upper().replace("0X", "0x") for word in filters
            ]:
                continue
            if entry["devices"] == "all" or card.index in entry["devices"]:
                cards[card.index] = (card, bool(entry["mig-enabled"]), dict(entry.get("mig-devices") or {}))
    return [cards[index] for index in sorted(cards)]


def applied(card: Card, on: bool, devices: dict[str, int]) -> bool:
    if bool(mig.mode(card)) != on:
        return False
    return dict(mig.layout(card)) == {name: count for name, count in devices.items() if count}


def apply(card: Card, on: bool, devices: dict[str, int]) -> None:
    if card.gpu.mig is None:
        if on:
            raise Refusal(1, f"error setting MIGMode: MIG is not supported on GPU {card.index}")
        return
    mig.switch(card, on)
    if on:
        mig.cut(card, devices)


def answer(args: list[str]) -> str:
    command = next((arg for arg in args if not arg.startswith("-")), "")
    file, name = os.environ["MIG_PARTED_CONFIG_FILE"], os.environ["MIG_PARTED_SELECTED_CONFIG"]
    if command not in ("apply", "assert"):
        raise Refusal(1, f"No help topic for '{command}'")
    plan = wanted(yaml.safe_load(Path(file).read_text()), name)
    machine.loaded()
    if not plan:
        raise Refusal(1, "the selected configuration names no GPU of this machine")
    if command == "assert":
        if not all(applied(*entry) for entry in plan):
            raise Refusal(1, "Assertion failure: selected configuration not currently applied")
        return "Selected MIG configuration currently applied"
    for entry in plan:
        if not applied(*entry):
            apply(*entry)
    return "MIG configuration applied successfully"


def main() -> int:
    try:
        print(answer(sys.argv[1:]))
    except (Refusal, OSError) as error:
        print(f'time="now" level=fatal msg="{error}"', file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
