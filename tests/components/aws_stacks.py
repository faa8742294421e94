"""The committed stacks, and variants of the AWS ones for single tests."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from tests.components.recording import Recorded, Recorder

ROOT = Path(__file__).resolve().parents[2]


def stack(name: str) -> dict[str, Any]:
    content = yaml.safe_load((ROOT / f"Pulumi.{name}.yaml").read_text())
    environment: dict[str, Any] = content["config"]["gpuform:environment"]
    return environment


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
