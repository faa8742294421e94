from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from lab.simulator import keys

WORK = "work"
Json = dict[str, Any]


def pod(name: str, asks: dict[str, int], annotations: dict[str, str] | None = None, **spec: Any) -> Json:
    """A user's pod that requests GPUs and tolerates the taint of all GPU nodes."""
    limits = {key: str(count) for key, count in asks.items()}
    container = {"name": "work", "image": "none", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": WORK, "annotations": annotations or {}},
        "spec": {
            "containers": [container],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }


def played(
    name: str, series: Iterable[tuple[str, Mapping[str, str], float]], more: Iterable[Json] = ()
) -> Json:
    """A PrometheusRule with series that nothing on an embedded cluster exports, and more rules."""
    rules = [
        {"record": metric, "expr": f"vector({value})", **({"labels": dict(labels)} if labels else {})}
        for metric, labels, value in series
    ]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": name, "namespace": "monitoring", "labels": {"release": "monitoring"}},
        "spec": {"groups": [{"name": name, "rules": [*rules, *more]}]},
    }


def broken_memory(gpu: int, seconds_ago: float) -> str:
    """The fault annotation of a GPU with memory errors since ``seconds_ago``."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S.000+00:00", time.gmtime(time.time() - seconds_ago))
    return f"{keys.FAULTS}={json.dumps([{'kind': 'ecc', 'gpu': gpu, 'since': since}])}"
