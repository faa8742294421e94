from __future__ import annotations

import copy
from typing import Any

_IMAGE = "nvcr.io/nvidia/tritonserver:26.06-py3"
START: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "existing", "kubeconfig": "/k"},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "selector": {"a": "b"}}],
    "monitoring": {},
    "workloads": [
        {"name": "data", "kind": "pod", "image": _IMAGE},
        {
            "name": "triton",
            "kind": "inference",
            "pool": "t4",
            "image": _IMAGE,
            "service": {"port": 80, "target_port": 8000},
            "scale": {"max": 4, "qps_per_replica": 50},
        },
    ],
}
_SCALE = "workloads/1/scale"
_MODEL = "workloads/1/model"
SERVED = copy.deepcopy(START)
SERVED["workloads"][1]["model"] = {"uri": "s3://models/a", "format": "onnx"}

ROWS: dict[tuple[str, str], tuple[dict[str, Any], str, Any]] = {
    ("InferenceWorkload", "scale"): (START, _SCALE, None),
    ("InferenceWorkload", "metrics"): (START, "workloads/1/metrics", {"port": 9000}),
    ("InferenceWorkload", "near"): (START, "workloads/1/near", "data"),
    ("InferenceWorkload", "model"): (START, _MODEL, SERVED["workloads"][1]["model"]),
    ("ServedModel", "uri"): (SERVED, f"{_MODEL}/uri", "pvc://models"),
    ("ServedModel", "format"): (SERVED, f"{_MODEL}/format", "triton"),
    ("ServedModel", "service_account"): (SERVED, f"{_MODEL}/service_account", "models"),
    ("Environment", "kserve"): (SERVED, "kserve", {"cert_manager": "existing"}),
    ("KServe", "cert_manager"): (SERVED, "kserve", {"cert_manager": "existing"}),
    ("Metrics", "port"): (START, "workloads/1/metrics", {"port": 8000}),
    ("Metrics", "path"): (START, "workloads/1/metrics", {"path": "/prometheus"}),
    ("Scale", "min"): (START, f"{_SCALE}/min", 2),
    ("Scale", "max"): (START, f"{_SCALE}/max", 8),
    ("Scale", "qps_per_replica"): (START, f"{_SCALE}/qps_per_replica", 0.5),
    ("Scale", "query"): (START, f"{_SCALE}/query", "sum(rate(requests[1m])) or vector(0)"),
    ("Scale", "cooldown_seconds"): (START, f"{_SCALE}/cooldown_seconds", 60),
}
