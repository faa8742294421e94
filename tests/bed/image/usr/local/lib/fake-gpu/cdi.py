#!/usr/bin/python3
"""Plays `nvidia-ctk cdi generate`, which queries NVML: one device per GPU or MIG device, and all."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import machine
import mig
import yaml
from machine import Card, Refusal

KIND = "nvidia.com/gpu"


def spec() -> dict[str, Any]:
    driver = machine.loaded()["version"]
    devices = []
    for card in machine.cards():
        devices += _devices(card)
    nodes = [{"path": path} for path in sorted({node for _, paths in devices for node in paths})]
    listed = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": path} for path in paths]}}
        for name, paths in devices
    ]
    library = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{driver}"
    mount = {
        "hostPath": library,
        "containerPath": library,
        "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
    }
    common = [{"path": path} for path in ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")]
    edits = {"env": ["NVIDIA_VISIBLE_DEVICES=void"], "deviceNodes": common, "mounts": [mount]}
    listed.append({"name": "all", "containerEdits": {"deviceNodes": nodes}})
    return {"cdiVersion": "0.5.0", "kind": KIND, "devices": listed, "containerEdits": edits}


def _devices(card: Card) -> list[tuple[str, list[str]]]:
    node = f"/dev/nvidia{card.index}"
    if not mig.mode(card):
        return [(str(card.index), [node]), (card.uuid, [node])]
    result = []
    for number, (profile, start) in enumerate(mig.placed(card)):
        caps = [f"/dev/nvidia-caps/nvidia-cap{100 * card.index + 10 * number + part}" for part in (1, 2)]
        uuid = "MIG-" + machine.identifier("mig", card.index, profile, start)
        result += [(f"{card.index}:{number}", [node, *caps]), (uuid, [node, *caps])]
    return result


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--output", default=os.environ.get("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", ""))
    given, _ = parser.parse_known_args(sys.argv[3:])
    try:
        text = yaml.safe_dump(spec(), sort_keys=False)
    except Refusal as refusal:
        print(f'time="now" level=error msg="failed to generate CDI spec: {refusal}"', file=sys.stderr)
        return 1
    if given.output:
        Path(given.output).parent.mkdir(parents=True, exist_ok=True)
        Path(given.output).write_text(text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
