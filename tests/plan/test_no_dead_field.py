"""Every field of the environment changes a rendered object besides the environment itself.

Fields that only AWS has go to its API rather than into a manifest: tests/components has those rows.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import BaseModel

from infra.config import parse
from infra.model.errors import InputError
from infra.model.hosts import HostsCluster
from infra.plan.inventory import key_paths
from infra.plan.render import render
from tests.components import aws_fields
from tests.components.aws_stacks import small
from tests.config.edits import changed
from tests.config.test_schema import every_model
from tests.plan import (
    health_fields,
    hosts_fields,
    monitoring_fields,
    openstack_fields,
    own_fields,
    scaling_fields,
    scheduling_fields,
)

pytestmark = pytest.mark.unit

IMAGE = "tensorflow/tensorflow:2.12.0-gpu"
POD = {"pool": "t4", "image": IMAGE}

SLICES = {"kind": "time_slicing", "replicas": 4}
SEVEN = {"kind": "mig", "layout": {"1g.5gb": 7}}
SHARED = {**SEVEN, "devices": [0, 1], "share": {"replicas": 2}}
EMBEDDED: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "embedded"},
    "gpu_operator": {},
    "pools": [
        {"name": "t4", "machine": "g2.5xlarge", "nodes": 3, "taints": [{"key": "a", "value": "b"}]},
        {"name": "slices", "machine": "g2.5xlarge", "nodes": 1, "sharing": SLICES},
        {"name": "mig", "machine": "g4.p1.40g", "nodes": 1, "sharing": SEVEN},
        {"name": "gpu", "nodes": 1, "gpu": {"models": ["T4"], "count": 1}},
        {"name": "some", "machine": "g4.p4.40g", "nodes": 1, "sharing": SHARED},
        {"name": "any", "nodes": 1, "gpu": {"memory_gib": 15, "nvlink": False, "compute": "7.5", "count": 1}},
        {"name": "claimed", "machine": "g4.p1.40g", "nodes": 1, "sharing": {"kind": "dra"}},
    ],
    "workloads": [
        {"name": "pod", "kind": "pod", **POD},
        {"name": "deployment", "kind": "deployment", **POD},
        {"name": "job", "kind": "job", **POD},
        {"name": "sliced", "kind": "pod", "pool": "mig", "image": IMAGE},
        {"name": "pinned", "kind": "pod", "gpu_product": "Tesla-T4", "image": IMAGE},
        {"name": "four", "kind": "pod", "pool": "gpu", "image": IMAGE},
    ],
}  # fmt: skip
SERVED = {"kind": "deployment", "pool": "a", "image": IMAGE, "replicas": 4, "service": {"port": 80}}
CHOSEN: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "embedded"},
    "pools": [
        {"name": "t4", "machine": "g2.5xlarge", "nodes": 1},
        {"name": "a", "machine": "g4.p4.40g", "nodes": 4},
        {"name": "h", "machine": "p5.48xlarge", "nodes": 1},
    ],
    "workloads": [
        {"name": "any", "kind": "pod", "gpu": {"memory_gib": 1}, "image": IMAGE},
        {"name": "rolled", "update": {"kind": "rolling"}, **SERVED},
        {"name": "coloured", "update": {"kind": "blue_green"}, **SERVED},
        {"name": "surging", "update": {"kind": "surge"}, **SERVED},
    ],
}
MPS: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "embedded"},
    "gpu_operator": {"mig_strategy": "none"},
    "pools": [
        {"name": "mps", "machine": "g2.5xlarge", "nodes": 1, "sharing": {"kind": "mps", "replicas": 4}}
    ],
}
EXISTING: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "existing", "kubeconfig": "/k"},
    "gpu_operator": {},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "selector": {"a": "b"}}],
}
DRAINED: dict[str, Any] = {**EXISTING, "gpu_operator": {"upgrade": {"drain": {}}}}
# An older toolkit needs its acknowledgements.
OLD: dict[str, Any] = {
    **EXISTING,
    "gpu_operator": {"toolkit_version": "1.17.4", "acknowledge": ["CVE-2025-23266"]},
}
RESERVING: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "embedded"},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "nodes": 1, "hugepages": "4Gi"}],
    "workloads": [{"name": "pod", "kind": "pod", "pool": "t4", "image": IMAGE, "hugepages": "2Gi"}],
}
FABRIC: dict[str, Any] = {
    **small(
        {"name": "a", "machine": "p4d.24xlarge", "nodes": 1, "zones": ["us-west-2a"], "aws": {"efa": True}}
    ),
    "workloads": [{"name": "pod", "kind": "pod", "pool": "a", "image": IMAGE, "efa": 4}],
}
SPOT: dict[str, Any] = {
    **small({"name": "t4", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 40}}, "capacity": ["spot"]}),
    "cost": {},
}

# Type and field: (start, path, another value). Workloads share a base: one row there covers three.
ROWS: dict[tuple[str, str], tuple[dict[str, Any], str, Any]] = {
    ("Environment", "name"): (EMBEDDED, "name", "f"),
    ("Environment", "cluster"): (EXISTING, "cluster/kind", ...),
    ("Environment", "gpu_operator"): (MPS, "gpu_operator", {"mig_strategy": "single"}),
    ("Environment", "pools"): (EMBEDDED, "pools/0/nodes", 2),
    ("Environment", "workloads"): (EMBEDDED, "workloads", []),
    ("Environment", "registries"): (EXISTING, "registries", {"nvcr.io": "registry.example.org/nvcr"}),
    ("Environment", "cost"): (EMBEDDED, "cost", {"prices": {"g2.5xlarge": 1.0}}),
    ("Cost", "budget_usd_per_month"): (SPOT, "cost/budget_usd_per_month", 100),
    ("Cost", "spot_factor"): (SPOT, "cost/spot_factor", 0.4),
    ("Cost", "prices"): (SPOT, "cost/prices", {"t4": 1.0}),
    ("GpuOperatorSpec", "mig_strategy"): (MPS, "gpu_operator/mig_strategy", "single"),
    ("GpuOperatorSpec", "gpu_taint"): (EMBEDDED, "gpu_operator/gpu_taint", "node-role.kubernetes.io/gpu"),
    ("GpuOperatorSpec", "repository"): (EXISTING, "gpu_operator/repository", "https://mirror.example/charts"),
    ("GpuOperatorSpec", "driver"): (EXISTING, "gpu_operator/driver", "host"),
    ("GpuOperatorSpec", "nfd"): (EXISTING, "gpu_operator/nfd", False),
    ("GpuOperatorSpec", "driver_repository"): (EXISTING, "gpu_operator/driver_repository", "r.example/gpu"),
    ("GpuOperatorSpec", "driver_image"): (EXISTING, "gpu_operator/driver_image", "own"),
    ("GpuOperatorSpec", "toolkit"): (EXISTING, "gpu_operator/toolkit", "host"),
    ("GpuOperatorSpec", "mode"): (EXISTING, "gpu_operator/mode", "device_plugin"),
    ("GpuOperatorSpec", "version"): (EXISTING, "gpu_operator/version", "v25.10.0"),
    ("GpuOperatorSpec", "driver_version"): (EXISTING, "gpu_operator/driver_version", "580.95.05"),
    ("GpuOperatorSpec", "kernel_modules"): (EXISTING, "gpu_operator/kernel_modules", "open"),
    ("GpuOperatorSpec", "toolkit_version"): (EXISTING, "gpu_operator/toolkit_version", "1.19.1"),
    ("GpuOperatorSpec", "toolkit_env"): (EXISTING, "gpu_operator/toolkit_env", {"CONTAINERD_CONFIG": "/c"}),
    **{
        ("ToolkitEnv", name): (EXISTING, "gpu_operator/toolkit_env", {name: value})
        for name, value in {
            "CONTAINERD_CONFIG": "/etc/k3s/config.toml",
            "CONTAINERD_SOCKET": "/run/k3s/containerd.sock",
            "RUNTIME_CONFIG_SOURCE": "command,file",
            "RUNTIME_DROP_IN_CONFIG": "/etc/containerd/conf.d/gpus.toml",
            "RUNTIME_RESTART_MODE": "systemd",
        }.items()
    },
    ("ToolkitEnv", "RUNTIME_EXECUTABLE_PATH"): (
        {**EXISTING, "gpu_operator": {"toolkit_env": {"RUNTIME_CONFIG_SOURCE": "command"}}},
        "gpu_operator/toolkit_env/RUNTIME_EXECUTABLE_PATH",
        "/opt/bin/containerd",
    ),
    ("GpuOperatorSpec", "upgrade"): (EXISTING, "gpu_operator/upgrade", {"auto": False}),
    ("GpuOperatorSpec", "cdi"): (EXISTING, "gpu_operator/cdi", False),
    ("GpuOperatorSpec", "runtime_class"): (EMBEDDED, "gpu_operator/runtime_class", "nvidia"),
    ("GpuOperatorSpec", "acknowledge"): (OLD, "gpu_operator", {}),
    ("Upgrade", "auto"): (EXISTING, "gpu_operator/upgrade", {"auto": False}),
    ("Upgrade", "max_parallel"): (EXISTING, "gpu_operator/upgrade", {"max_parallel": 2}),
    ("Upgrade", "max_unavailable"): (EXISTING, "gpu_operator/upgrade", {"max_unavailable": 2}),
    ("Upgrade", "drain"): (EXISTING, "gpu_operator/upgrade", {"drain": {}}),
    ("Drain", "timeout_seconds"): (DRAINED, "gpu_operator/upgrade/drain/timeout_seconds", 60),
    ("Drain", "force"): (DRAINED, "gpu_operator/upgrade/drain/force", True),
    ("Drain", "delete_empty_dir"): (DRAINED, "gpu_operator/upgrade/drain/delete_empty_dir", True),
    ("Pool", "name"): (EXISTING, "pools/0/name", "other"),
    ("Pool", "machine"): (EMBEDDED, "pools/0/machine", "g4dn.4xlarge"),
    ("Pool", "gpu"): (EMBEDDED, "pools/3/gpu", {"models": ["T4"], "count": 4}),
    ("Pool", "nodes"): (EMBEDDED, "pools/0/nodes", 2),
    ("Pool", "selector"): (EXISTING, "pools/0/selector", {"a": "c"}),
    ("Pool", "labels"): (EMBEDDED, "pools/0/labels", {"a": "c"}),
    ("Pool", "taints"): (EMBEDDED, "pools/0/taints", []),
    ("Pool", "trust"): (EMBEDDED, "pools/0/trust", "multi"),
    ("Pool", "sharing"): (EMBEDDED, "pools/0/sharing", {"kind": "time_slicing", "replicas": 2}),
    ("GpuChoice", "named"): (EMBEDDED, "pools/3/gpu/models", ["L4"]),
    ("GpuChoice", "memory_gib"): (EMBEDDED, "pools/5/gpu/memory_gib", 22),
    ("GpuChoice", "nvlink"): (EMBEDDED, "pools/5/gpu/nvlink", True),
    ("GpuChoice", "compute"): (EMBEDDED, "pools/5/gpu/compute", "8.9"),
    ("Pool", "reset"): (EMBEDDED, "pools/2/reset", "reboot"),
    ("Pool", "relayout"): (EMBEDDED, "pools/2/relayout", {}),
    ("Relayout", "in_use"): (EMBEDDED, "pools/2/relayout", {"in_use": "refuse"}),
    ("Relayout", "max_unavailable"): (EMBEDDED, "pools/2/relayout", {"max_unavailable": "25%"}),
    ("Relayout", "timeout_seconds"): (EMBEDDED, "pools/2/relayout", {"timeout_seconds": 60}),
    ("GpuChoice", "count"): (EMBEDDED, "pools/3/gpu/count", 4),
    ("Taint", "key"): (EMBEDDED, "pools/0/taints/0/key", "c"),
    ("Taint", "value"): (EMBEDDED, "pools/0/taints/0/value", "c"),
    ("Taint", "effect"): (EMBEDDED, "pools/0/taints/0/effect", "NoExecute"),
    ("TimeSlicing", "replicas"): (EMBEDDED, "pools/1/sharing/replicas", 8),
    ("TimeSlicing", "rename"): (EMBEDDED, "pools/1/sharing/rename", False),
    ("TimeSlicing", "fail_requests_greater_than_one"): (
        EMBEDDED,
        "pools/1/sharing/fail_requests_greater_than_one",
        False,
    ),
    ("Mps", "replicas"): (MPS, "pools/0/sharing/replicas", 8),
    ("Mig", "layout"): (EMBEDDED, "pools/2/sharing/layout", {"1g.5gb": 6}),
    ("Mig", "name"): (EMBEDDED, "pools/2/sharing/name", "seven"),
    ("Mig", "devices"): (EMBEDDED, "pools/4/sharing/devices", [1, 2]),
    ("Mig", "share"): (EMBEDDED, "pools/4/sharing/share", None),
    ("Mig", "strategy"): (EMBEDDED, "pools/2/sharing/strategy", "single"),
    ("SliceShare", "replicas"): (EMBEDDED, "pools/4/sharing/share/replicas", 3),
    ("SliceShare", "rename"): (EMBEDDED, "pools/4/sharing/share/rename", False),
    ("SliceShare", "fail_requests_greater_than_one"): (
        EMBEDDED,
        "pools/4/sharing/share/fail_requests_greater_than_one",
        False,
    ),
    ("Dra", "layout"): (EMBEDDED, "pools/6/sharing/layout", {"1g.5gb": 7}),
    ("PodWorkload", "name"): (EMBEDDED, "workloads/0/name", "other"),
    ("PodWorkload", "namespace"): (EMBEDDED, "workloads/0/namespace", "other"),
    ("PodWorkload", "pool"): (EMBEDDED, "workloads/0/pool", "slices"),
    ("PodWorkload", "gpu_product"): (EMBEDDED, "workloads/4/gpu_product", "NVIDIA-A100-PCIE-40GB"),
    ("PodWorkload", "gpu"): (CHOSEN, "workloads/0/gpu", {"memory_gib": 40}),
    ("PodWorkload", "env"): (EMBEDDED, "workloads/0/env", {"A": "b"}),
    ("GpuNeed", "memory_gib"): (CHOSEN, "workloads/0/gpu/memory_gib", 40),
    ("GpuNeed", "compute"): (CHOSEN, "workloads/0/gpu/compute", "8.0"),
    ("GpuNeed", "nvlink"): (CHOSEN, "workloads/0/gpu/nvlink", True),
    ("GpuNeed", "family"): (CHOSEN, "workloads/0/gpu/family", "turing"),
    ("DeploymentWorkload", "service"): (EMBEDDED, "workloads/1/service", {"port": 80}),
    ("DeploymentWorkload", "update"): (EMBEDDED, "workloads/1/update", {"kind": "recreate"}),
    ("Service", "port"): (CHOSEN, "workloads/1/service/port", 81),
    ("Service", "target_port"): (CHOSEN, "workloads/1/service/target_port", 8000),
    ("Service", "ready_path"): (CHOSEN, "workloads/1/service/ready_path", "/ready"),
    ("Surge", "step"): (CHOSEN, "workloads/3/update/step", 2),
    ("Rolling", "step"): (CHOSEN, "workloads/1/update/step", 2),
    ("PodWorkload", "slice"): (EMBEDDED, "workloads/3/slice", "1g.5gb"),
    ("PodWorkload", "count"): (EMBEDDED, "workloads/3/count", 2),
    ("PodWorkload", "cpu"): (EMBEDDED, "workloads/0/cpu", 2),
    ("PodWorkload", "memory"): (EMBEDDED, "workloads/0/memory", "2Gi"),
    ("PodWorkload", "runtime_class"): (EMBEDDED, "workloads/0/runtime_class", "kata"),
    ("Pool", "hugepages"): (RESERVING, "pools/0/hugepages", "8Gi"),
    ("PodWorkload", "shm"): (EMBEDDED, "workloads/0/shm", "512Mi"),
    ("PodWorkload", "hugepages"): (RESERVING, "workloads/0/hugepages", "1Gi"),
    ("PodWorkload", "efa"): (FABRIC, "workloads/0/efa", 2),
    ("PodWorkload", "image"): (EMBEDDED, "workloads/0/image", "tensorflow/tensorflow:2.13.0-gpu"),
    ("PodWorkload", "command"): (EMBEDDED, "workloads/0/command", ["sleep", "1"]),
    ("PodWorkload", "start_minutes"): (CHOSEN, "workloads/1/start_minutes", 30),
    ("DeploymentWorkload", "replicas"): (EMBEDDED, "workloads/1/replicas", 2),
    ("JobWorkload", "parallelism"): (EMBEDDED, "workloads/2/parallelism", 2),
    ("JobWorkload", "completions"): (EMBEDDED, "workloads/2/completions", 2),
    ("JobWorkload", "indexed"): (EMBEDDED, "workloads/2/indexed", True),
    ("JobWorkload", "wait_minutes"): (EMBEDDED, "workloads/2/wait_minutes", 5),
    **health_fields.ROWS,
    **hosts_fields.ROWS,
    **monitoring_fields.ROWS,
    **openstack_fields.ROWS,
    **own_fields.ROWS,
    **scaling_fields.ROWS,
    **scheduling_fields.ROWS,
}

# Exempt: fields that choose a type (each type has its own rows), the two for reaching the cluster, which go
# to the Kubernetes provider, and where the engine keeps its state, which tests/engine/test_state.py tests.
# No manifest may depend on them.
EXEMPT = {("ExistingCluster", "kubeconfig"), ("ExistingCluster", "context")}
# How the provider's workflow proceeds: tests/components/test_workloads.py tests these.
EXEMPT |= {("BlueGreen", key) for key in ("step", "switch_at", "deadline_seconds")}
# Read by the guards, which are resources of the program only: tests/components/test_loss_guards.py.
EXEMPT |= {("Environment", "acknowledge_loss")}
EXEMPT |= {("Environment", "state"), ("State", "backend"), ("State", "secrets_provider")}
# Declares a fact about the machine of an update: tests/clouds/aws/test_preflight_reach.py.
EXEMPT |= {("Endpoint", "reached_by")}
CHOOSING = {"kind"}
# Its presence changes a manifest, not its value: this pool has only one slice profile.
NEEDS_A_SECOND_PROFILE = ("PodWorkload", "slice")


def test_the_table_knows_every_field() -> None:
    fields = set()
    for model in every_model():
        name = model.__name__
        shared = set(models_named(BASE[name]).model_fields) if name in BASE else set()
        fields |= {(name, key) for key in model.model_fields if key not in CHOOSING | shared}
    elsewhere = aws_fields.FIELDS | hosts_fields.LETS_THROUGH | openstack_fields.EXEMPT
    assert fields == set(ROWS) | EXEMPT | elsewhere | set(own_fields.REFUSED)


BASE = {
    **dict.fromkeys(("DeploymentWorkload", "JobWorkload", "NotebookWorkload"), "PodWorkload"),
    "InferenceWorkload": "DeploymentWorkload",
}
"""Types that share fields with another, which has the rows."""


def models_named(name: str) -> type[BaseModel]:
    return next(model for model in every_model() if model.__name__ == name)


def rendered(mapping: dict[str, Any]) -> dict[str, str]:
    env = parse(mapping)
    paths = dict(key_paths(env)).values() if isinstance(env.cluster, HostsCluster) else ()
    files = render(env, {path: f"the key in {path}" for path in paths})
    del files["environment.yaml"]
    return files


@pytest.mark.parametrize("row", ROWS, ids=[".".join(row) for row in ROWS])
def test_the_field_changes_what_is_rendered(row: tuple[str, str]) -> None:
    start, path, value = ROWS[row]
    before, after = copy.deepcopy(start), copy.deepcopy(start)
    if row == NEEDS_A_SECOND_PROFILE:
        for mapping in (before, after):
            mapping["pools"][2]["sharing"]["layout"] = {"1g.5gb": 1, "2g.10gb": 1}
            mapping["workloads"][3]["slice"] = "2g.10gb"
    if value is ...:
        after = {
            **copy.deepcopy(EMBEDDED),
            "pools": [{"name": "t4", "machine": "g2.5xlarge", "nodes": 1}],
            "workloads": [],
        }
    else:
        after = changed(after, {"at": path, "put": value})
    assert rendered(before) != rendered(after)


@pytest.mark.parametrize("row", own_fields.REFUSED, ids=[".".join(row) for row in own_fields.REFUSED])
def test_the_field_decides_what_is_accepted(row: tuple[str, str]) -> None:
    start, path, value = own_fields.REFUSED[row]
    assert rendered(start)
    with pytest.raises(InputError):
        parse(changed(start, {"at": path, "put": value}))


def test_the_connection_changes_no_manifest() -> None:
    other = {**EXISTING, "cluster": {"kind": "existing", "kubeconfig": "/other", "context": "c"}}
    assert rendered(EXISTING) == rendered(other)


def test_which_cloud_it_is_changes_no_manifest() -> None:
    named = openstack_fields.NAMED
    assert rendered(named) == rendered({**named, "cluster": {**named["cluster"], "cloud": "other"}})


def test_where_the_state_is_kept_changes_no_manifest() -> None:
    state = {"backend": "s3://bucket/prefix", "secrets_provider": "awskms://alias/gpuform"}
    assert rendered(EXISTING) == rendered({**EXISTING, "state": state})
