"""The stack file for a rehearsal's engine, and the simulated nodes of each kind of cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from infra.config import load, parse
from infra.model.base import labels
from infra.model.environment import Environment
from infra.plan import gpu_operator
from lab.rehearse import nodes, stack_file
from lab.rehearse.stack_file import INTERVAL, SELECTED
from tests.build.environments import declared, on

pytestmark = pytest.mark.unit

HERE = Paths.here().root
KUBECONFIG = Path("/state/kubeconfig")


def stack(name: str) -> Environment:
    return load(HERE / f"Pulumi.{name}.yaml")


def simulated(env: Environment) -> nodes.RehearsedNodes:
    return nodes.simulated_nodes(env).rehearsed(env)


def derived(stack: str) -> Environment:
    declared = stack_file.read(HERE / f"Pulumi.{stack}.yaml")
    return parse(stack_file.derive(declared, parse(declared), KUBECONFIG))


@pytest.mark.parametrize("name", ["local", "aws-dev", "aws-prod", "onprem-dev"])
def test_a_derived_environment_has_the_same_pools_and_no_workloads(name: str) -> None:
    before, after = stack(name), derived(name)
    assert after.workloads == ()
    pools = [[(pool.name, pool.sharing, pool.taints) for pool in env.pools] for env in (before, after)]
    assert pools[0] == pools[1]
    if before.cluster.kind in ("aws", "embedded"):
        assert after.cluster == before.cluster


def test_own_hosts_become_an_existing_cluster_with_what_ansible_installed() -> None:
    before, after = stack("onprem-dev"), derived("onprem-dev")
    assert after.cluster.kind == "existing"
    assert after.cluster.kubeconfig == str(KUBECONFIG)
    assert after.pools[0].selector == {SELECTED: "a100-mig"}
    before = before.model_copy(update={"monitoring": after.monitoring})
    assert after.monitoring
    assert after.monitoring.interval == INTERVAL
    values, real = gpu_operator.values(after), gpu_operator.values(before)
    # By mounts on own hosts, where gpuform installs the toolkit; pods need the RuntimeClass either way.
    listed = [item["devicePlugin"].pop("env")[0]["value"] for item in (values, real)]
    assert listed == ["envvar", "volume-mounts"]
    assert values == real
    assert (after.cdi, after.runtime_class) == (before.cdi, before.runtime_class) == (False, "nvidia")


def test_an_existing_cluster_is_not_touched() -> None:
    context = {"kubeconfig": "~/.kube/config", "context": "theirs"}
    given = declared("existing", {"machine": "g4.p1.40g", "selector": {"rack": "7"}}, cluster=context)
    env = parse(given)
    result = stack_file.derive(given, env, KUBECONFIG)
    assert result["cluster"] == {"kind": "existing", "kubeconfig": str(KUBECONFIG)}
    assert given["cluster"]["context"] == "theirs"
    made = simulated(env)
    assert made.assumptions == ("the number of nodes is not declared; simulated: one each, p0 as g4.p1.40g",)
    (node,) = made.manifests
    assert node["metadata"]["labels"] == {
        "rack": "7",
        labels.HOSTNAME: "p0-0",
        labels.OS: "linux",
        labels.ARCH: "amd64",
        labels.INSTANCE_TYPE: "g4.p1.40g",
    }
    assert "spec" not in node, "its taints are what the program gives it"


@pytest.mark.parametrize("kind", ["existing", "openstack"])
@pytest.mark.parametrize("operator", [{"mode": "existing", "gpu_taint": "gpu"}, {"nfd": False}])
def test_what_a_cluster_brings_by_itself_is_simulated_by_the_stacks_own(
    kind: str, operator: dict[str, Any]
) -> None:
    given = declared(kind, {"machine": "g2.5xlarge"}, gpu_operator=operator)
    env = parse(given)
    after = parse(stack_file.derive(given, env, KUBECONFIG))
    values = gpu_operator.values(after)
    assert "nfd" not in values
    assert values["driver"]["enabled"] is values["toolkit"]["enabled"] is (operator == {"nfd": False})
    assert after.gpu_operator.gpu_taint == env.gpu_operator.gpu_taint
    assert given["gpu_operator"] == operator


def test_a_declared_state_is_left_alone() -> None:
    given = stack_file.read(HERE / "Pulumi.aws-dev.yaml")
    state = {"backend": "s3://bucket/state", "secrets": "awskms://alias/key"}
    assert "state" not in stack_file.derive({**given, "state": state}, parse(given), KUBECONFIG)


def test_each_host_is_a_node_with_its_gpus_and_driver() -> None:
    made = simulated(stack("onprem-dev"))
    result = {manifest["metadata"]["name"]: manifest["metadata"] for manifest in made.manifests}
    assert set(result) == {"gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "cpu-1"}
    expected = {
        labels.SIM_GPU_COUNT: "2",
        labels.SIM_HOST_DRIVER: "580.178.04",
        labels.SIM_CONTAINER_RUNTIME: "containerd://1.6",
        labels.SIM_DEFAULT_RUNTIME: "runc",
    }
    assert expected.items() <= result["gpu-1"]["annotations"].items()
    assert labels.SIM_GPU not in result["cpu-1"]["annotations"]
    keys = [key for item in result.values() for key in item["labels"]]
    assert not any(key.startswith(("gpuform.io/", "nvidia.com/")) for key in keys)
    assert "not declared" in made.assumptions[0]


def test_on_aws_only_what_karpenter_does_not_buy_is_simulated_and_its_assumptions_are_said() -> None:
    made = simulated(stack("aws-prod"))
    pools = {item["metadata"]["labels"][labels.POOL] for item in made.manifests if item["kind"] == "Node"}
    assert pools == {"a100-mig", "system"}
    kinds = {item["kind"] for item in made.manifests}
    assert kinds == {"Node", "DaemonSet"}, "without them Karpenter counts too little"
    stand_in, held = made.assumptions
    assert "creates nothing" in stand_in
    assert held.endswith("is not declared; simulated: 4 p5.48xlarge in us-west-2b in cr-0123456789abcdef0")
    assert simulated(stack("aws-dev")).assumptions == (stand_in,)


def test_a_pool_of_an_unknown_machine_is_refused() -> None:
    message = r"^pools\[0\]\.gpu: no known machine has 7 of T4.*; name a machine"
    with pytest.raises(InputError, match=message):
        simulated(on("existing", {"gpu": {"models": ["T4"], "count": 7}}))


def test_the_folder_has_everything_of_the_checkout_but_its_own_stack_file(tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    for folder in (".gpuform", ".git", "infra"):
        (root / folder).mkdir(parents=True)
    for name in ("Pulumi.yaml", "Pulumi.lab.yaml", "Pulumi.other.yaml"):
        (root / name).write_text("name: gpuform\n")
    made = stack_file.write(root, tmp_path / "derived", "lab", {"name": "lab"})
    names = {item.name for item in made.iterdir()}
    assert names == {"infra", "Pulumi.yaml", "Pulumi.lab.yaml", "Pulumi.other.yaml"}
    content = yaml.safe_load((made / "Pulumi.lab.yaml").read_text())
    assert content == {"config": {"gpuform:environment": {"name": "lab"}}}
    assert (root / "Pulumi.lab.yaml").read_text() == "name: gpuform\n"
