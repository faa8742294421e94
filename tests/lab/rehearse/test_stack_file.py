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

pytestmark = pytest.mark.unit

HERE = Paths.here().root
KUBECONFIG = Path("/state/kubeconfig")


def played(env: Environment) -> nodes.RehearsedNodes:
    return nodes.simulated_nodes(env).rehearsed(env)


def derived(stack: str) -> dict[str, Any]:
    declared = stack_file.read(HERE / f"Pulumi.{stack}.yaml")
    return stack_file.derive(declared, parse(declared), KUBECONFIG)


@pytest.mark.parametrize("stack", ["local", "aws-dev", "aws-prod", "onprem-dev"])
def test_it_is_a_valid_environment_with_the_same_pools_and_no_workloads(stack: str) -> None:
    before, after = load(HERE / f"Pulumi.{stack}.yaml"), parse(derived(stack))
    assert after.workloads == ()
    assert [pool.name for pool in after.pools] == [pool.name for pool in before.pools]
    assert [pool.sharing for pool in after.pools] == [pool.sharing for pool in before.pools]
    assert [pool.taints for pool in after.pools] == [pool.taints for pool in before.pools]
    if before.cluster.kind in ("aws", "embedded"):
        assert after.cluster == before.cluster


def test_own_hosts_become_a_cluster_that_is_there_with_what_ansible_left_on_them() -> None:
    before, after = load(HERE / "Pulumi.onprem-dev.yaml"), parse(derived("onprem-dev"))
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
    declared = {
        "name": "there",
        "cluster": {"kind": "existing", "kubeconfig": "~/.kube/config", "context": "theirs"},
        "pools": [{"name": "a", "machine": "g4.p1.40g", "selector": {"rack": "7"}}],
    }
    env = parse(declared)
    result = stack_file.derive(declared, env, KUBECONFIG)
    assert result["cluster"] == {"kind": "existing", "kubeconfig": str(KUBECONFIG)}
    assert declared["cluster"]["context"] == "theirs"
    simulated = played(env)
    assert simulated.assumptions == (
        "the number of nodes is not declared; simulated: one each, a as g4.p1.40g",
    )
    (made,) = simulated.manifests
    assert made["metadata"]["labels"] == {
        "rack": "7",
        labels.HOSTNAME: "a-0",
        labels.OS: "linux",
        labels.ARCH: "amd64",
        labels.INSTANCE_TYPE: "g4.p1.40g",
    }
    assert "spec" not in made, "its taints are what the program gives it"


@pytest.mark.parametrize("kind", ["existing", "openstack"])
@pytest.mark.parametrize("operator", [{"mode": "existing", "gpu_taint": "gpu"}, {"nfd": False}])
def test_what_a_cluster_brings_by_itself_is_simulated_by_the_stacks_own(
    kind: str, operator: dict[str, Any]
) -> None:
    place = {"existing": {"kubeconfig": "/k"}, "openstack": {"template": "t", "version": "1.34"}}
    nodes = {"existing": {"selector": {"a": "b"}}, "openstack": {"nodes": 1}}
    declared = {
        "name": "there",
        "cluster": {"kind": kind, **place[kind]},
        "gpu_operator": operator,
        "pools": [{"name": "gpu", "machine": "g2.5xlarge", **nodes[kind]}],
    }
    env = parse(declared)
    after = parse(stack_file.derive(declared, env, KUBECONFIG))
    values = gpu_operator.values(after)
    assert "nfd" not in values
    assert values["driver"]["enabled"] is values["toolkit"]["enabled"] is (operator == {"nfd": False})
    assert after.gpu_operator.gpu_taint == env.gpu_operator.gpu_taint
    assert "gpu_operator" in declared
    assert declared["gpu_operator"] == operator


def test_a_state_elsewhere_is_left_alone() -> None:
    declared = stack_file.read(HERE / "Pulumi.aws-dev.yaml")
    state = {"backend": "s3://bucket/state", "secrets": "awskms://alias/key"}
    assert "state" not in stack_file.derive({**declared, "state": state}, parse(declared), KUBECONFIG)


def test_each_host_is_a_node_with_its_gpus_and_driver() -> None:
    simulated = played(load(HERE / "Pulumi.onprem-dev.yaml"))
    result = {manifest["metadata"]["name"]: manifest["metadata"] for manifest in simulated.manifests}
    assert set(result) == {"gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "cpu-1"}
    assert result["gpu-1"]["annotations"][labels.SIM_GPU_COUNT] == "2"
    assert result["gpu-1"]["annotations"][labels.SIM_HOST_DRIVER] == "580.178.04"
    assert labels.SIM_GPU not in result["cpu-1"]["annotations"]
    assert result["gpu-1"]["annotations"][labels.SIM_CONTAINER_RUNTIME] == "containerd://1.6"
    assert result["gpu-1"]["annotations"][labels.SIM_DEFAULT_RUNTIME] == "runc"
    assert not any(
        key.startswith(("gpuform.io/", "nvidia.com/")) for item in result.values() for key in item["labels"]
    )
    assert "not declared" in simulated.assumptions[0]


def test_on_aws_only_what_karpenter_does_not_buy() -> None:
    made = played(load(HERE / "Pulumi.aws-prod.yaml")).manifests
    pools = {item["metadata"]["labels"][labels.POOL] for item in made if item["kind"] == "Node"}
    assert pools == {"a100-mig", "system"}
    assert {item["kind"] for item in made} == {"Node", "DaemonSet"}, (
        "without them Karpenter counts too little"
    )


def test_what_is_made_up_of_aws_is_said() -> None:
    stand_in, held = played(load(HERE / "Pulumi.aws-prod.yaml")).assumptions
    assert "creates nothing" in stand_in
    assert held.endswith("is not declared; simulated: 4 p5.48xlarge in us-west-2b in cr-0123456789abcdef0")
    assert played(load(HERE / "Pulumi.aws-dev.yaml")).assumptions == (stand_in,)


def test_a_found_pool_of_an_unknown_machine_is_refused() -> None:
    env = parse(
        {
            "name": "there",
            "cluster": {"kind": "existing", "kubeconfig": "x"},
            "pools": [{"name": "a", "gpu": {"models": ["T4"], "count": 7}, "selector": {"rack": "7"}}],
        }
    )
    with pytest.raises(InputError, match=r"^pools\[0\]\.gpu: no known machine has 7 of T4.*; name a machine"):
        played(env)


def test_the_folder_has_everything_of_the_checkout_but_its_own_stack_file(tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    (root / ".gpuform").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "infra").mkdir()
    for name in ("Pulumi.yaml", "Pulumi.lab.yaml", "Pulumi.other.yaml"):
        (root / name).write_text("name: gpuform\n")
    made = stack_file.write(root, tmp_path / "derived", "lab", {"name": "lab"})
    assert {item.name for item in made.iterdir()} == {
        "infra",
        "Pulumi.yaml",
        "Pulumi.lab.yaml",
        "Pulumi.other.yaml",
    }
    assert yaml.safe_load((made / "Pulumi.lab.yaml").read_text()) == {
        "config": {"gpuform:environment": {"name": "lab"}}
    }
    assert (root / "Pulumi.lab.yaml").read_text() == "name: gpuform\n"
