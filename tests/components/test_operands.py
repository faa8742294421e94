"""The operator and the device plugin alone: each has the other as an alias for a change of mode."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from infra.config import parse
from infra.platform import platform
from infra.target import Target
from tests.components.recording import Recorder, own_loop

pytestmark = pytest.mark.unit

RELEASE = "kubernetes:helm.sh/v3:Release"


class _Requests(pulumi.runtime.mocks.MockMonitor):  # type: ignore[name-defined, misc]
    def __init__(self, mocks: Recorder) -> None:
        super().__init__(mocks)
        self.seen: dict[str, Any] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802  (gRPC's name)
        self.seen[f"{request.type} {request.name}"] = request
        return super().RegisterResource(request)


EMBEDDED = {
    "name": "e",
    "cluster": {"kind": "embedded"},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "nodes": 1}],
}
THERE = {
    "name": "e",
    "cluster": {"kind": "existing", "kubeconfig": "/k"},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "selector": {"a": "b"}}],
}


def registered(mode: str, declared: dict[str, Any] = EMBEDDED) -> dict[str, Any]:
    env = parse({**declared, "gpu_operator": {"mode": mode, "mig_strategy": "none"}})
    recorder = Recorder(preview=False)
    monitor = _Requests(recorder)
    own_loop()
    pulumi.runtime.set_mocks(recorder, project="p", stack="s", preview=False, monitor=monitor)

    def program() -> None:
        import pulumi_kubernetes

        platform(
            env, Target(provider=pulumi_kubernetes.Provider("k"), kubeconfig=pulumi.Output.from_input("k"))
        )

    pulumi.runtime.test(program)()
    return monitor.seen


@pytest.mark.parametrize(
    ("mode", "own", "before"),
    [
        ("operator", "GpuOperator gpu-operator", "DevicePlugin device-plugin"),
        ("device_plugin", "DevicePlugin device-plugin", "GpuOperator gpu-operator"),
    ],
)
def test_the_one_goes_before_the_other_comes(mode: str, own: str, before: str) -> None:
    """Both charts have DaemonSets of the same names, and would both offer the same GPUs."""
    seen = registered(mode)
    (alias,) = seen[f"gpuform:platform:{own}"].aliases
    assert f"{alias.spec.type} {alias.spec.name}" == f"gpuform:platform:{before}"
    (release,) = [request for key, request in seen.items() if key.startswith(RELEASE)]
    assert release.name == f"{own.split()[1]}-release", "the engine makes the alias of a child from this"
    assert release.deleteBeforeReplace


def test_beside_the_clusters_own_operator_nothing_of_ours_is_installed() -> None:
    """Nor is its namespace ours: a destroy would delete it."""
    pool, whole = (
        {key for key in registered(mode, THERE) if "gpuform:" not in key} for mode in ("existing", "operator")
    )
    assert not [key for key in pool if key.startswith(RELEASE)]
    assert {key for key in pool if "Namespace" in key} == {
        "kubernetes:core/v1:Namespace namespaces-gpuform-platform"
    }
    assert [key for key in whole if "gpu-operator-release" in key]
    assert [key for key in whole if key.endswith("namespaces-gpu-operator")]
    assert [key for key in whole if "readiness-gate" in key]
    assert not [key for key in pool if "readiness-gate" in key], "its operands do not tolerate our taint"
