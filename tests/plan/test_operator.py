"""The operator's release: who owns what, tolerations, upgrades, and no key unknown to the chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.model.base import labels
from infra.model.base.errors import InputError
from infra.model.checks.environment import warnings
from infra.model.environment import Environment
from infra.model.gpu import drivers
from infra.model.platform.operator import OWNERS
from infra.model.pool import allocatable
from infra.plan import device_plugin, gpu_operator, sharing
from infra.plan.render import render
from policies import guarded, operator
from policies.rule import Resource, judge
from tests.build import aws_environments
from tests.build.environments import on
from tests.checks.charts import OF_THE_DEPENDENCY, unknown_keys
from tests.external import reference

pytestmark = pytest.mark.unit


def existing(*pools: dict[str, Any], **operator: Any) -> Environment:
    return on("existing", *pools, gpu_operator=operator)


def aws(image: str, **pool: Any) -> Environment:
    own = {"name": "p", "machine": "p4d.24xlarge", "nodes": 1, "aws": {"image": image}, **pool}
    return aws_environments.aws(own, mig_strategy="single")


SLICES = {"sharing": {"kind": "mig", "layout": "all-1g.5gb"}}
SHARES = {"sharing": {"kind": "time_slicing", "replicas": 4}}


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


@pytest.mark.parametrize(
    ("shared", "offered"),
    [
        ({"kind": "time_slicing", "replicas": 4, "rename": False}, {"nvidia.com/gpu": 32}),
        ({"kind": "mps", "replicas": 2}, {"nvidia.com/gpu": 16}),
        ({"kind": "mig", "layout": "all-1g.5gb", "strategy": "single"}, {"nvidia.com/gpu": 56}),
        ({"kind": "mig", "layout": "all-1g.5gb", "strategy": "mixed"}, {"nvidia.com/mig-1g.5gb": 56}),
    ],
)
def test_sharing_describes_what_the_plugin_of_others_offers_and_configures_nothing(
    shared: dict[str, Any], offered: dict[str, int]
) -> None:
    found = existing({"machine": "p4d.24xlarge", "sharing": shared}, mode="existing")
    (pool,) = found.pools
    assert allocatable.resources(pool) == offered
    whole = render(existing({"machine": "p4d.24xlarge"}, mode="existing"))
    assert render(found).keys() == whole.keys()
    assert sharing.pool_labels(found, pool).keys() == {"gpuform.io/environment", "gpuform.io/pool"}
    assert sharing.device_plugin_change(found, pool) is None


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


RULES = (*operator.RULES, *guarded.RULES)
T4 = {"machine": "g2.5xlarge"}
HOSTS = on("hosts", {"gpu": {"models": ["T4"], "count": 1}})
EMBEDDED = on("embedded", T4)


def magnum(**spec: str) -> Environment:
    return on("openstack", T4, gpu_operator=spec)


# Row, its environment, and the owner of driver, toolkit, device plugin and MIG: typed independently.
TABLE: dict[str, tuple[Environment, tuple[str, str, str, str]]] = {
    "al2023-nvidia": (aws("al2023-nvidia"), ("image", "image", "operator", "operator")),
    "bottlerocket-nvidia": (aws("bottlerocket-nvidia"), ("image", "image", "image", "image")),
    "ansible": (HOSTS, ("ansible", "ansible", "operator", "operator")),
    "operator": (existing(T4), ("operator", "operator", "operator", "operator")),
    "host-driver": (existing(T4, driver="host"), ("host", "operator", "operator", "operator")),
    "host-toolkit": (existing(T4, toolkit="host"), ("operator", "host", "operator", "operator")),
    "host": (existing(T4, driver="host", toolkit="host"), ("host", "host", "operator", "operator")),
    "magnum": (magnum(), ("operator", "operator", "operator", "operator")),
    "magnum-host-driver": (magnum(driver="host"), ("host", "operator", "operator", "operator")),
    "magnum-host-toolkit": (magnum(toolkit="host"), ("operator", "host", "operator", "operator")),
    "magnum-host": (magnum(driver="host", toolkit="host"), ("host", "host", "operator", "operator")),
    "embedded": (EMBEDDED, ("operator", "operator", "operator", "operator")),
}
GUARD = {"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "value": "false"}
FILE = {"name": "RUNTIME_CONFIG_SOURCE", "value": "file"}
MOUNTS = {"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS", "value": "true"}


def known(values: Any) -> None:
    chart = reference("charts/gpu-operator/values.yaml")
    assert unknown_keys(values, yaml.safe_load(chart.read_text())) <= OF_THE_DEPENDENCY


def test_the_table_has_every_row() -> None:
    assert set(TABLE) == set(OWNERS)


@pytest.mark.parametrize("row", TABLE)
def test_the_operator_installs_what_it_owns_and_nothing_else(row: str) -> None:
    env, (driver, toolkit, plugin, mig) = TABLE[row]
    owns, values = env.ownership, gpu_operator.values(env)
    assert owns == OWNERS[row]
    assert (owns.driver, owns.toolkit, owns.device_plugin, owns.mig) == (driver, toolkit, plugin, mig)
    enabled = [values[part]["enabled"] for part in ("driver", "toolkit", "devicePlugin")]
    assert enabled == [owner == "operator" for owner in (driver, toolkit, plugin)]
    assert ("upgradePolicy" in values["driver"]) is (driver == "operator")
    assert ("kernelModuleType" in values["driver"]) is (driver == "operator")
    assert env.has_mig_manager is (mig == "operator")
    known(values)


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs/howto/operator.md").read_text()
    rows = [line for line in page.split("## ")[0].splitlines() if line.startswith("| ")][1:]
    assert rows == [
        f"| {row.nodes} | {row.driver} | {row.toolkit} | {row.device_plugin} | {row.mig} |"
        for row in OWNERS.values()
    ]


@pytest.mark.parametrize(
    ("owner", "toolkit", "plugin"),
    [
        ({}, {"enabled": True, "env": [GUARD, MOUNTS, FILE]}, "volume-mounts"),
        ({"driver": "host"}, {"enabled": True, "env": [GUARD, MOUNTS, FILE]}, "volume-mounts"),
        ({"toolkit": "host"}, {"enabled": False}, "envvar"),
    ],
)
def test_without_cdi_a_toolkit_of_ours_gives_gpus_by_mounts_only(
    owner: dict[str, str], toolkit: dict[str, Any], plugin: str
) -> None:
    values = gpu_operator.values(existing(T4, cdi=False, **owner))
    assert values["cdi"]["enabled"] is False
    assert values["toolkit"] == toolkit
    assert values["devicePlugin"]["env"] == [{"name": "DEVICE_LIST_STRATEGY", "value": plugin}]
    known(values)


def test_without_cdi_a_node_image_that_we_configure_gives_gpus_by_mounts_only() -> None:
    env = aws("al2023-nvidia").resolved()
    values = gpu_operator.values(parse({**env, "gpu_operator": {**env["gpu_operator"], "cdi": False}}))
    assert values["devicePlugin"]["env"] == [{"name": "DEVICE_LIST_STRATEGY", "value": "volume-mounts"}]


def test_another_driver_goes_from_node_to_node_as_declared() -> None:
    drain = {"timeout_seconds": 60, "force": True, "delete_empty_dir": True}
    env = existing(
        T4, driver_version="580.95.05", kernel_modules="open", upgrade={"max_parallel": 2, "drain": drain}
    )
    values = gpu_operator.values(env)
    assert values["driver"] == {
        "enabled": True,
        "version": "580.95.05",
        "kernelModuleType": "open",
        "upgradePolicy": {
            "autoUpgrade": True,
            "maxParallelUpgrades": 2,
            "maxUnavailable": "25%",
            "drain": {"enable": True, "force": True, "timeoutSeconds": 60, "deleteEmptyDir": True},
            "gpuPodDeletion": {"force": False, "deleteEmptyDir": False},
        },
    }
    known(values)


SHM = {"kind": "deployment", "pool": "p0", "shm": "1Gi"}
BARE = {"kind": "pod", "pool": "p0"}
SERVED = {"kind": "inference", "pool": "p0", "service": {"port": 80}}
ENDED: list[tuple[list[dict[str, Any]], dict[str, Any], str]] = [
    ([], {}, ""),
    ([{"kind": "deployment", "pool": "p0"}], {}, ""),
    ([SHM], {}, "empty"),
    ([{**SHM, "shm": None, "hugepages": "2Mi"}], {}, "empty"),
    ([{**SHM, "kind": "job"}], {}, "empty"),
    ([{"kind": "notebook", "editor": "jupyterlab", "user": "a", "pool": "p0"}], {}, ""),
    ([{**SHM, "kind": "notebook", "editor": "jupyterlab", "user": "a"}], {}, "empty"),
    ([{**SERVED, "model": {"uri": "s3://a/b", "format": "onnx"}}], {}, "empty"),
    ([{**SERVED, "model": {"uri": "pvc://a/b", "format": "onnx"}}], {}, ""),
    ([SERVED], {}, ""),
    ([BARE], {}, "force"),
    ([{"kind": "pod", "gpu_product": "Tesla-T4"}], {}, "force"),
    ([SHM, BARE], {}, "empty force"),
    ([{**SHM, "pool": "p1"}, {**BARE, "pool": "p1"}, {"kind": "pod", "shm": "1Gi"}], {}, ""),  # without a GPU
    ([], {"delete_empty_dir": True, "force": True}, "empty force"),  # for pods of others
    ([SHM, BARE], {"delete_empty_dir": False}, "force"),
]


@pytest.mark.parametrize(("works", "upgrade", "expected"), ENDED)
def test_the_pods_of_declared_workloads_can_be_ended(
    works: list[dict[str, Any]], upgrade: dict[str, Any], expected: str
) -> None:
    """Else their node stays cordoned, and the upgrade of others waits (NVIDIA/gpu-operator#566)."""
    pools = {**T4, "hugepages": "1Gi"}, {"machine": "m6i.xlarge"}
    env = on("existing", *pools, workloads=works, gpu_operator={"upgrade": {**upgrade, "drain": {}}})
    values = gpu_operator.values(env)
    flags = {"deleteEmptyDir": "empty" in expected, "force": "force" in expected}
    policy = values["driver"]["upgradePolicy"]
    assert policy["gpuPodDeletion"] == flags
    assert {key: policy["drain"][key] for key in flags} == flags
    assert bool(warnings(env)) is (False in upgrade.values())
    known(values)


OFF = {"delete_empty_dir": False, "force": False}
CORDONED = "its node is not upgraded; use true, or leave it out"
STUCK: list[tuple[list[dict[str, Any]], dict[str, Any], list[str]]] = [
    ([{"kind": "deployment", "pool": "p0"}], {**OFF, "drain": OFF}, []),
    ([SHM], OFF, [f"delete_empty_dir: each pod of workload w0 has an emptyDir, and {CORDONED}"]),
    ([BARE], OFF, [f"force: each pod of workload w0 has no controller, and {CORDONED}"]),
    ([BARE], {**OFF, "drain": {}}, [f"force: each pod of workload w0 has no controller, and {CORDONED}"]),
    ([BARE], {**OFF, "drain": {"force": True}}, []),
    (
        [SHM],
        {"drain": OFF},
        ["drain.delete_empty_dir: each pod of workload w0 has an emptyDir, and a drain fails"],
    ),
    ([SHM], {"drain": {}}, []),
]


@pytest.mark.parametrize(("works", "upgrade", "expected"), STUCK)
def test_a_flag_that_keeps_the_pods_of_a_declared_workload_is_warned_of(
    works: list[dict[str, Any]], upgrade: dict[str, Any], expected: list[str]
) -> None:
    env = on("existing", T4, workloads=works, gpu_operator={"upgrade": upgrade})
    assert len(warnings(env)) == len(expected)
    for text, start in zip(warnings(env), expected, strict=True):
        assert text.startswith(f"gpu_operator.upgrade.{start}")
    assert warnings(on("existing", T4, workloads=works, gpu_operator={"upgrade": {"drain": {}}})) == ()


def test_a_number_of_nodes_is_a_number_to_the_operator() -> None:
    """The operator reads text as a percentage, and upgrades nothing for one without a percent sign."""
    values = gpu_operator.values(existing(T4, upgrade={"max_unavailable": 2}))
    assert values["driver"]["upgradePolicy"]["maxUnavailable"] == 2
    known(values)


@pytest.mark.parametrize(
    ("version", "tag"), [("1.17.8", "v1.17.8-ubuntu20.04"), ("1.18.1", "v1.18.1"), ("1.19.1", "v1.19.1")]
)
def test_the_toolkits_image_is_tagged_as_nvidia_tags_it(version: str, tag: str) -> None:
    accepted = list(drivers.open_cves(drivers.TOOLKIT_FIXES, version))
    values = gpu_operator.values(existing(T4, toolkit_version=version, acknowledge=accepted))
    assert values["toolkit"]["version"] == tag
    known(values)


def test_what_was_accepted_stands_at_the_operands() -> None:
    """The sources' own versions stay declarable; the release shows which CVEs were accepted."""
    holes = list(drivers.OPERATOR_FIXES)
    env = existing(T4, version="v24.3.0", toolkit_version="1.15.0", acknowledge=holes)
    assert gpu_operator.release(env).version == "v24.3.0"
    annotations = gpu_operator.values(env)["daemonsets"]["annotations"]
    assert annotations == {labels.ACKNOWLEDGED: ",".join(holes)}
    known(gpu_operator.values(env))


def test_where_no_branch_drives_two_gpus_both_are_named() -> None:
    with pytest.raises(InputError) as refused:
        existing({"machine": "g1.4xlarge"}, {"machine": "g7.2xlarge"})
    assert refused.value.path == "gpu_operator.driver"
    assert refused.value.fact == (
        "no driver supports both V100-PCIE-16GB (pool p0, last branch 580) and RTX-PRO-4500 (pool p1, from "
        "595.58.03 on)"
    )


@pytest.mark.parametrize(
    "operator",
    [
        {"version": "v24.3.0", "acknowledge": list(drivers.OPERATOR_FIXES)},
        {"toolkit_version": "1.15.0", "acknowledge": list(drivers.TOOLKIT_FIXES)},
        {"cdi": False},
        {"cdi": False, "toolkit": "host"},
    ],
)
def test_the_policies_find_what_was_accepted_and_what_guards(operator: dict[str, Any]) -> None:
    release = gpu_operator.release(existing(T4, **operator))
    judged = Resource("kubernetes:helm.sh/v3:Release", "r", vars(release))
    assert [finding.fact for finding in judge(RULES, [judged])] == []


def test_the_policies_refuse_it_without() -> None:
    release = gpu_operator.release(existing(T4, toolkit_version="1.19.0", acknowledge=["CVE-2026-24260"]))
    del release.values["daemonsets"]["annotations"]
    judged = Resource("kubernetes:helm.sh/v3:Release", "r", vars(release))
    (found,) = judge(RULES, [judged])
    assert (found.rule.id, found.rule.severity) == ("version-floors", "critical")


def test_no_crd_is_copied() -> None:
    """The stand-in of the network operator has one of its own, with the fields that gpuform sets."""
    root = Path(__file__).parents[2]
    copies = [
        path
        for folder in ("charts", "infra", "components", "gpuform")
        for path in (root / folder).rglob("*.y*ml")
        if "kind: CustomResourceDefinition" in path.read_text()
    ]
    assert [path.name for path in copies] == ["nicclusterpolicies.yaml"]
