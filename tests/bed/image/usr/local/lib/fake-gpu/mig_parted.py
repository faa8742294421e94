#!/usr/bin/python3
"""Plays nvidia-mig-parted: apply, assert and export a configuration, on the fake's own instances."""

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


def applied(card: Card, on: bool, devices: dict[str, int], mode_only: bool) -> bool:
    if bool(mig.mode(card)) != on:
        return False
    return mode_only or dict(mig.layout(card)) == {name: count for name, count in devices.items() if count}


def apply(card: Card, on: bool, devices: dict[str, int], mode_only: bool) -> None:
    if card.gpu.mig is None:
        if on:
            raise Refusal(1, f"error setting MIGMode: MIG is not supported on GPU {card.index}")
        return
    mig.switch(card, on)
    if on and not mode_only:
        mig.cut(card, devices)


def export() -> str:
    entries = [
        {"devices": [card.index], "mig-enabled": bool(mig.mode(card)), "mig-devices": dict(mig.layout(card))}
        for card in machine.cards()
    ]
    return str(yaml.safe_dump({"version": "v1", "mig-configs": {"current": entries}}, sort_keys=False))


def answer(args: list[str]) -> str:
    command = next((arg for arg in args if not arg.startswith("-")), "")
    file = _value(args, "-f", "--config-file") or os.environ.get("MIG_PARTED_CONFIG_FILE", "")
    name = _value(args, "-c", "--selected-config") or os.environ.get("MIG_PARTED_SELECTED_CONFIG", "")
    mode_only = "--mode-only" in args or "-m" in args
    if command == "export":
        machine.loaded()
        return export()
    if command not in ("apply", "assert"):
        raise Refusal(1, f"No help topic for '{command}'")
    with sys.stdin if file == "-" else Path(file).open() as stream:
        plan = wanted(yaml.safe_load(stream), name)
    if "--valid-config" in args or "-a" in args:
        return "Selected MIG configuration is valid"
    machine.loaded()
    if not plan:
        raise Refusal(1, "the selected configuration names no GPU of this machine")
    if command == "assert":
        if not all(applied(*entry, mode_only) for entry in plan):
            raise Refusal(1, "Assertion failure: selected configuration not currently applied")
        return "Selected MIG configuration currently applied"
    for entry in plan:
        if not applied(*entry, mode_only):
            apply(*entry, mode_only)
    return "MIG configuration applied successfully"


def _value(args: list[str], *names: str) -> str:
    for number, arg in enumerate(args):
        if arg in names and number + 1 < len(args):
            return args[number + 1]
        for name in names:
            if arg.startswith(f"{name}="):
                return arg.partition("=")[2]
    return ""


def main() -> int:
    try:
        print(answer(sys.argv[1:]))
    except (Refusal, OSError) as error:
        print(f'time="now" level=fatal msg="{error}"', file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
