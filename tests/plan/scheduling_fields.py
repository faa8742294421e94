from __future__ import annotations

from typing import Any

from tests.components.aws_stacks import small

_IMAGE = "tensorflow/tensorflow:2.12.0-gpu"
START: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "existing", "kubeconfig": "/k"},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "selector": {"a": "b"}}],
    "scheduling": {"packer": True, "version": "1.34.4"},
    "priorities": {"high": 1000, "low": 10},
    "namespaces": [{"name": "team", "quota": {"t4": 4}}],
    "workloads": [{"name": "pod", "kind": "pod", "pool": "t4", "image": _IMAGE, "priority": "low"}],
}
ELASTIC: dict[str, Any] = small(
    {"name": "t4", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 40}}, "spare": 1}
)

ROWS: dict[tuple[str, str], tuple[dict[str, Any], str, Any]] = {
    ("Environment", "scheduling"): (START, "scheduling", {}),
    ("Environment", "priorities"): (START, "priorities/high", 2000),
    ("Environment", "namespaces"): (START, "namespaces", []),
    ("Scheduling", "packer"): ({**START, "scheduling": {}}, "scheduling", START["scheduling"]),
    ("Scheduling", "version"): (START, "scheduling/version", "1.33.1"),
    ("Namespace", "name"): (START, "namespaces/0/name", "other"),
    ("Namespace", "quota"): (START, "namespaces/0/quota/t4", 3),
    ("PodWorkload", "priority"): (START, "workloads/0/priority", "high"),
    ("Pool", "spare"): (ELASTIC, "pools/0/spare", 2),
}
