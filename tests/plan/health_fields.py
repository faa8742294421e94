from __future__ import annotations

from typing import Any

from tests.components.aws_stacks import small

MONITORED: dict[str, Any] = {"monitoring": {}}
START: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "existing", "kubeconfig": "/k"},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "selector": {"a": "b"}}],
    **MONITORED,
    "health": {"mode": "cordon"},
}
ELASTIC = {"name": "t4", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 40}}}
ON_AWS: dict[str, Any] = {**small(ELASTIC), **MONITORED, "health": {"remediator": "gpuform"}}

ROWS: dict[tuple[str, str], tuple[dict[str, Any], str, Any]] = {
    ("Environment", "health"): (START, "health", {}),
    ("Health", "mode"): (START, "health/mode", "replace"),
    ("Health", "remediator"): (ON_AWS, "health/remediator", "karpenter"),
    ("Health", "budget"): (START, "health/budget", "10%"),
    ("Health", "max"): (START, "health/max", 3),
    ("Health", "window"): (START, "health/window", "30m"),
}
