"""Fields of declared GPUs and machines: where each lies, and another value for it.

With the other value the rows of ``REFUSED`` make the environment invalid.
"""

from __future__ import annotations

from typing import Any

from tests.components.aws_stacks import small

_GPU: dict[str, Any] = {
    "product": "NVIDIA A100-SXM-64GB",
    "memory_mib": 65536,
    "compute": "8.0",
    "pci": "10de:20b3",
    "linked": "nvlink",
    "driver": {"first": "570.86.15"},
    "mig": {
        "compute": 7,
        "memory": 8,
        "profiles": {"1g.8gb": {"compute": 1, "memory": 1, "starts": [0, 1, 2, 3, 4, 5, 6]}},
    },
}
_MACHINE = {"gpu": "own", "count": 4, "vcpu": 32, "memory_gib": 512}
_POOL = {"name": "p", "machine": "box", "sharing": {"kind": "mig", "layout": {"1g.8gb": 2}}}
START: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "embedded"},
    "gpus": {"own": _GPU},
    "machines": {"box": _MACHINE},
    "pools": [{**_POOL, "nodes": 1}],
}
TYPE: dict[str, Any] = {
    **small(
        {
            **_POOL,
            "machine": "p9.large",
            "nodes": 1,
            "zones": ["us-west-2a"],
            "aws": {"efa": True, "instance_store": "raid0"},
        },
    ),
    "gpus": {"own": _GPU},
    "machines": {"p9.large": {**_MACHINE, "pods": 737, "efa": 2, "nvme_gb": 100}},
}
# The only model with NVLink that a workload could get.
LINKED: dict[str, Any] = {
    **START,
    "pools": [{"name": "p", "machine": "box", "nodes": 1}],
    "workloads": [
        {"name": "w", "kind": "pod", "gpu": {"memory_gib": 1, "nvlink": True}, "image": "busybox:1.37.0"}
    ],
}
# The operator installs one driver for all models.
EXISTING: dict[str, Any] = {
    **START,
    "cluster": {"kind": "existing", "kubeconfig": "/k"},
    "gpu_operator": {"driver_version": "580.95.05", "kernel_modules": "proprietary"},
    "pools": [{**_POOL, "selector": {"a": "b"}}],
}
# The workload gets a slice only if the slice has 8 GiB.
SLICED: dict[str, Any] = {
    **START,
    "workloads": [{"name": "w", "kind": "pod", "gpu": {"memory_gib": 8}, "image": "busybox:1.37.0"}],
}

ROWS: dict[tuple[str, str], tuple[dict[str, Any], str, Any]] = {
    ("Environment", "gpus"): (START, "gpus/own/memory_mib", 65530),
    ("Environment", "machines"): (START, "machines/box/vcpu", 16),
    ("OwnGpu", "product"): (START, "gpus/own/product", "NVIDIA A100-SXM-65GB"),
    ("OwnGpu", "memory_mib"): (START, "gpus/own/memory_mib", 65530),
    ("OwnGpu", "compute"): (START, "gpus/own/compute", "8.6"),
    ("OwnGpu", "pci"): (START, "gpus/own/pci", "10de:ffff"),
    ("OwnGpu", "mig"): (START, "gpus/own/mig/profiles/2g.16gb", {"compute": 2, "memory": 2, "starts": [0]}),
    ("OwnMig", "profiles"): (START, "gpus/own/mig/profiles/1g.8gb/starts", [0, 1, 2, 3]),
    ("OwnMig", "compute"): (START, "gpus/own/mig/compute", 8),
    ("OwnProfile", "starts"): (START, "gpus/own/mig/profiles/1g.8gb/starts", [0, 1]),
    ("OwnMachine", "count"): (START, "machines/box/count", 2),
    ("OwnMachine", "vcpu"): (START, "machines/box/vcpu", 16),
    ("OwnMachine", "memory_gib"): (START, "machines/box/memory_gib", 256),
    ("OwnMachine", "arch"): (START, "machines/box/arch", "arm64"),
    ("OwnMachine", "usd_per_hour"): (START, "machines/box/usd_per_hour", 1.0),
}
REFUSED: dict[tuple[str, str], tuple[dict[str, Any], str, Any]] = {
    ("OwnGpu", "linked"): (LINKED, "gpus/own/linked", None),
    ("OwnGpu", "driver"): (EXISTING, "gpus/own/driver", {"first": "590.44.01"}),
    ("OwnDriver", "first"): (EXISTING, "gpus/own/driver/first", "590.44.01"),
    ("OwnDriver", "last"): (EXISTING, "gpus/own/driver/last", 575),
    ("OwnDriver", "mig"): (EXISTING, "gpus/own/driver/mig", "590.44.01"),
    ("OwnDriver", "modules"): (EXISTING, "gpus/own/driver/modules", "open"),
    ("OwnMig", "memory"): (START, "gpus/own/mig/memory", 6),
    ("OwnProfile", "compute"): (START, "gpus/own/mig/profiles/1g.8gb/compute", 2),
    ("OwnProfile", "memory"): (START, "gpus/own/mig/profiles/1g.8gb/memory", 2),
    ("OwnProfile", "memory_mib"): (SLICED, "gpus/own/mig/profiles/1g.8gb/memory_mib", 8000),
    ("OwnProfile", "media"): (START, "gpus/own/mig/profiles/1g.8gb/media", True),
    ("OwnMachine", "gpu"): (START, "machines/box/gpu", "A100-80GB"),
    ("OwnMachine", "pods"): (TYPE, "machines/p9.large/pods", None),
    ("OwnMachine", "efa"): (TYPE, "machines/p9.large/efa", None),
    ("OwnMachine", "nvme_gb"): (TYPE, "machines/p9.large/nvme_gb", None),
}
