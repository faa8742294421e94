"""The operator's release: chart, driver ownership, tolerations, and no key unknown to the chart."""

from __future__ import annotations

from typing import Any

import pytest

from infra.model.environment import Environment
from infra.plan import device_plugin, gpu_operator, sharing
from infra.plan.render import render
from tests.plan import aws_environments
from tests.plan.environments import on

pytestmark = pytest.mark.unit

# The chart's own values lack the first two, which its dependency node-feature-discovery 0.19.0 takes; the
# third is in a comment there.
OF_THE_DEPENDENCY = {
    "node-feature-discovery.gc.tolerations",
    "node-feature-discovery.master.tolerations",
    "dcgmExporter.config",
}


def existing(*pools: dict[str, Any], **operator: Any) -> Environment:
    return on("existing", *pools, gpu_operator=operator)


def aws(image: str, **pool: Any) -> Environment:
    own = {"name": "p", "machine": "p4d.24xlarge", "nodes": 1, "aws": {"image": image}, **pool}
    return aws_environments.aws(own, mig_strategy="single")


SLICES = {"sharing": {"kind": "mig", "layout": "all-1g.5gb"}}
SHARES = {"sharing": {"kind": "time_slicing", "replicas": 4}}


def unknown_keys(values: Any, known: Any, path: str = "") -> set[str]:
    """Our keys that the chart's values file lacks; an empty block there accepts any key."""
    if not isinstance(values, dict) or not isinstance(known, dict) or not known:
        return set()
    found = {f"{path}{key}" for key in values if key not in known}
    for key in values:
        found |= unknown_keys(values[key], known.get(key), f"{path}{key}.")
    return found


def test_parts_that_the_cluster_has_are_left_out() -> None:
    assert "nfd" not in gpu_operator.values(existing({"machine": "g2.5xlarge"}))
    env = existing(
        {"machine": "g2.5xlarge"}, nfd=False, driver_repository="r.example/gpu", driver_image="own"
    )
    values = gpu_operator.values(env)
    assert values["nfd"] == {"enabled": False}
    assert values["driver"]["repository"] == "r.example/gpu"
    assert values["driver"]["image"] == "own"
    alone = existing({"machine": "g2.5xlarge"}, nfd=False, mode="device_plugin")
    assert device_plugin.values(alone)["nfd"]["enabled"] is False
    assert device_plugin.values(alone)["nfd"]["worker"], "one key more, and none less"
    theirs = render(existing({"machine": "g2.5xlarge"}, mode="existing"))
    assert not {"gpu-operator.yaml", "device-plugin.yaml", "readiness-gate.yaml"} & theirs.keys()
    assert "gpu-operator" not in theirs["namespaces.yaml"]


def toolkit_env(env: Environment) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in gpu_operator.values(env)["toolkit"]["env"]}


def test_the_toolkit_is_told_where_another_containerd_is() -> None:
    declared = {
        "CONTAINERD_CONFIG": "/var/snap/microk8s/current/args/containerd-template.toml",
        "CONTAINERD_SOCKET": "/var/snap/microk8s/common/run/containerd.sock",
        "RUNTIME_CONFIG_SOURCE": "file=/var/snap/microk8s/current/args/containerd.toml",
    }  # NVIDIA's documentation, getting started, MicroK8s
    found = toolkit_env(existing({"machine": "g2.5xlarge"}, toolkit_env=declared))
    assert found.pop("ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED") == "false"
    assert found == declared


@pytest.mark.parametrize(
    ("pools", "branch"),
    [
        (["g2.5xlarge"], "595"),
        (["g2.5xlarge", "g1.4xlarge"], "580"),
        (["g3.xlarge"], "580"),
        (["g1.4xlarge", "p6-b200.48xlarge"], "580"),  # R580 supports B200; modules are each node's own
    ],
)
def test_volta_keeps_the_driver_on_its_last_branch(pools: list[str], branch: str) -> None:
    env = existing(*({"machine": name} for name in pools))
    driver = gpu_operator.values(env)["driver"]
    assert (driver["version"].split(".")[0], driver["kernelModuleType"]) == (branch, "auto")


def test_every_operand_tolerates_every_taint_of_gpu_nodes() -> None:
    own = {"key": "team", "value": "a", "effect": "NoExecute"}
    env = existing(
        {"machine": "g2.5xlarge", "taints": [own]},
        {"machine": "g1.4xlarge", "taints": [own]},
        {"machine": "m6i.xlarge", "taints": [{"key": "web"}]},
        gpu_taint="node-role.kubernetes.io/gpu",
    )
    tolerations = [
        {"key": "node-role.kubernetes.io/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "gpuform.io/gpu-not-ready", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "team", "operator": "Exists", "effect": "NoExecute"},
    ]
    values = gpu_operator.values(env)
    assert values["daemonsets"]["tolerations"] == tolerations
    worker = values["node-feature-discovery"]["worker"]["tolerations"]
    assert worker[0]["key"] == "node-role.kubernetes.io/control-plane"
    assert worker[1:] == tolerations


@pytest.mark.parametrize(("machines", "taints"), [(["g2.5xlarge", "m6i.xlarge"], 0), (["g2.5xlarge"], 2)])
def test_the_operator_itself_keeps_off_gpu_nodes_where_there_are_others(
    machines: list[str], taints: int
) -> None:
    values = gpu_operator.values(existing(*({"machine": name} for name in machines)))
    discovery = values["node-feature-discovery"]
    for block in (values["operator"], discovery["gc"], discovery["master"]):
        keys = [toleration["key"] for toleration in block["tolerations"]]
        gpu_nodes = ["nvidia.com/gpu", "gpuform.io/gpu-not-ready"]
        assert keys == ["node-role.kubernetes.io/control-plane", *gpu_nodes][: 1 + taints]


@pytest.mark.parametrize("pool", [SLICES, SHARES, {}], ids=["mig", "time slicing", "exclusive"])
def test_on_bottlerocket_the_operator_neither_shares_nor_cuts(pool: dict[str, Any]) -> None:
    """The image's settings do both; a ConfigMap or label would have no effect, and is not created."""
    env = aws("bottlerocket-nvidia", **pool)
    values = gpu_operator.values(env)
    for part in ("driver", "toolkit", "devicePlugin", "migManager"):
        assert values[part] == {"enabled": False}, part
    assert sharing.device_plugin_config_map(env) is sharing.mig_parted_config_map(env) is None
    assert not [key for key in sharing.pool_labels(env, env.pools[0]) if key.startswith("nvidia.com/")]
