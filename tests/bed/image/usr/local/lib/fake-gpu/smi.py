#!/usr/bin/python3
"""Plays nvidia-smi: its list, --query-gpu, persistence mode, MIG, in the real format."""

from __future__ import annotations

import sys

import machine
import mig
from machine import Card, Refusal


def listing(cards: list[Card]) -> str:
    lines = []
    for card in cards:
        lines.append(f"GPU {card.index}: {card.gpu.product} (UUID: {card.uuid})")
        for number, (profile, start) in enumerate(mig.placed(card)):
            uuid = "MIG-" + machine.identifier("mig", card.index, profile, start)
            lines.append(f"  MIG {profile:<12}Device {number:>2}: (UUID: {uuid})")
    return "\n".join(lines)


def query(cards: list[Card], driver: str, fields: list[str], options: list[str]) -> str:
    rows = [] if "noheader" in options else [", ".join(fields)]
    for card in cards:
        on = mig.mode(card)
        known = {
            "index": str(card.index),
            "uuid": card.uuid,
            "name": card.gpu.product,
            "driver_version": driver,
            "persistence_mode": "Enabled" if machine.persistence() else "Disabled",
            "mig.mode.current": "[N/A]" if on is None else "Enabled" if on else "Disabled",
            "mig.mode.pending": "[N/A]" if on is None else "Enabled" if on else "Disabled",
        }
        for field in fields:
            if field not in known:
                raise Refusal(2, f'Field "{field}" is not a valid field to query.\n')
        rows.append(", ".join(known[field] for field in fields))
    return "\n".join(rows)


def persist(cards: list[Card], on: bool) -> str:
    if on:
        machine.PERSISTENT.parent.mkdir(parents=True, exist_ok=True)
        machine.PERSISTENT.touch()
    else:
        machine.PERSISTENT.unlink(missing_ok=True)
    word = "Enabled" if on else "Disabled"
    return "\n".join([*(f"{word} persistence mode for GPU {card.bus}." for card in cards), "All done."])


def switch_mig(cards: list[Card], on: bool) -> str:
    lines = []
    for card in cards:
        try:
            mig.switch(card, on)
            lines.append(f"{'Enabled' if on else 'Disabled'} MIG Mode for GPU {card.bus}")
        except Refusal as refusal:
            lines.append(str(refusal))
    return "\n".join([*lines, "All done."])


def mig_command(cards: list[Card], args: list[str]) -> str:
    cutting = [card for card in cards if mig.mode(card)]
    if not cutting:
        raise Refusal(6, "No MIG-enabled devices found.")
    if "-cgi" in args:
        names = args[args.index("-cgi") + 1].split(",")
        for card in cutting:
            mig.add(card, names)
        created = (
            f"Successfully created GPU instance on GPU {card.index}" for card in cutting for _ in names
        )
        return "\n".join(created)
    if "-dgi" in args or "-dci" in args:
        for card in cutting:
            if "-dgi" in args:
                mig.cut(card, {})
        return "\n".join(f"Successfully destroyed instances of GPU {card.index}" for card in cutting)
    raise Refusal(2, f"ERROR: Option {' '.join(args)} is not recognized.")


def answer(args: list[str]) -> str:
    driver = machine.loaded()["version"]
    cards = machine.cards()
    if not cards:
        raise Refusal(6, "No devices were found")
    if value := _value(args, "-i", "--id"):
        chosen = value.split(",")
        cards = [
            card for card in cards if str(card.index) in chosen or card.uuid in chosen or card.bus in chosen
        ]
        if not cards:
            raise Refusal(6, "No devices were found")
    if args[:1] in (["-L"], ["--list-gpus"]):
        return listing(cards)
    if args[:1] == ["mig"]:
        return mig_command(cards, args[1:])
    if fields := _value(args, "--query-gpu"):
        options = [word.strip() for word in (_value(args, "--format") or "").split(",")]
        if "csv" not in options:
            raise Refusal(2, '"--format=" switch is missing, it is required for --query-*')
        return query(cards, driver, [field.strip() for field in fields.split(",")], options)
    if value := _value(args, "-pm", "--persistence-mode"):
        return persist(cards, value in ("1", "ENABLED"))
    if value := _value(args, "-mig", "--multi-instance-gpu"):
        return switch_mig(cards, value in ("1", "ENABLED"))
    raise Refusal(
        2, f"Invalid combination of input arguments: {' '.join(args)}. Please run 'nvidia-smi -h' for help."
    )


def _value(args: list[str], *names: str) -> str | None:
    for number, arg in enumerate(args):
        if arg in names and number + 1 < len(args):
            return args[number + 1]
        for name in names:
            if arg.startswith(f"{name}="):
                return arg.partition("=")[2]
    return None


def main() -> int:
    try:
        print(answer(sys.argv[1:]))
    except Refusal as refusal:
        print(refusal)
        return refusal.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
