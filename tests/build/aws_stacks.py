"""The committed stacks, and variants of the AWS ones for single tests."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.recorder import Recorded, Recorder

ROOT = Path(__file__).resolve().parents[2]
VPC = "vpc-0123456789abcdef0"
SUBNETS = {f"us-west-2{letter}": f"subnet-0123456789abcde{letter}0" for letter in "abc"}
BY_ID = {"vpc": VPC, "subnets": SUBNETS}
BY_TAG = {"vpc": VPC, "subnets": {"tags": {"tier": "private", "team": "gpu"}, "zones": list(SUBNETS)}}
"""An existing network, with the subnet of each zone named by its id or found by tags."""


def stack(name: str) -> dict[str, Any]:
    content = yaml.safe_load((ROOT / f"Pulumi.{name}.yaml").read_text())
    environment: dict[str, Any] = content["config"]["gpuform:environment"]
    return environment


def own(text: str) -> str:
    """A stack file with a user's values in place of the examples' placeholders, which real runs refuse."""
    for placeholder, value in (
        ("iam::111122223333:", "iam::210987654321:"),
        ("203.0.113.0/24", "85.10.20.0/24"),
        ("cr-0123456789abcdef0", "cr-0fedcba9876543210"),
        ("registry.example.org", "registry.lab.test"),
        ("192.0.2.", "10.0.0."),
    ):
        text = text.replace(placeholder, value)
    return text


def own_checkout(folder: Path) -> Path:
    """A checkout with the examples' stack files, with a user's values in them."""
    folder.mkdir()
    for name in ("Pulumi.yaml", "toolchain"):
        (folder / name).symlink_to(ROOT / name)
    for file in ROOT.glob("Pulumi.*.yaml"):
        (folder / file.name).write_text(own(file.read_text()))
    return folder


def changed(environment: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    result = copy.deepcopy(environment)
    result["cluster"].update(cluster)
    return result


def small(*pools: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    return {
        "name": "labs",
        "cluster": {
            "kind": "aws",
            "region": "us-west-2",
            "version": "1.34",
            "network": {"cidr": "10.20.0.0/16", "zones": ["us-west-2a", "us-west-2b", "us-west-2c"]},
            "images": {"al2023": "al2023@v20260801", "al2023-nvidia": "al2023@v20260801"},
            **cluster,
        },
        "pools": list(pools),
    }


def waits_for(recorder: Recorder, resource: Recorded) -> set[str]:
    """Every resource that must exist before this one, including indirect dependencies."""
    by_key = {f"{item.type} {item.name}": item for item in recorder.resources}
    dependencies: set[str] = set()
    pending = list(resource.after)
    while pending:
        key = pending.pop()
        if key not in dependencies:
            dependencies.add(key)
            pending.extend(by_key[key].after if key in by_key else ())
    return dependencies
