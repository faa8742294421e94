"""The program on own hosts: registered resources before and after joining, and loaded SDKs."""

from __future__ import annotations

import json

import pytest

from tests.build.aws_stacks import ROOT, stack
from tests.components.programs import hosts_alone
from tests.fakes.recorder import Recorder, record

pytestmark = pytest.mark.unit

CONFIGURATION = "gpuform:hosts:HostConfiguration"
GUARD = "gpuform:guards:LossGuard"
POOL_NODES = "gpuform:nodes:PoolNodes"
LAYOUT = "gpuform:nodes:MigLayout"


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    return record(stack("onprem-dev"))


def test_hosts_that_have_joined_nothing_are_prepared_and_that_is_all() -> None:
    types = sorted(resource.type for resource in record(hosts_alone()).resources)
    assert types == [GUARD, GUARD, "gpuform:hosts:HostCluster", CONFIGURATION]


def test_one_run_prepares_every_host_with_the_inventory_of_the_stack(recorded: Recorder) -> None:
    inputs = recorded.one(CONFIGURATION).inputs
    assert inputs["playbook"] == "site.yml"
    assert inputs["inventory"] == (ROOT / "tests/golden/onprem-dev/inventory.json").read_text()
    assert len(inputs["content"]) == 64


def test_another_driver_is_another_content() -> None:
    changed = stack("onprem-dev")
    changed["cluster"]["driver"]["version"] = "570.133.20"
    content = record(changed).one(CONFIGURATION).inputs["content"]
    assert content != record(stack("onprem-dev")).one(CONFIGURATION).inputs["content"]


def test_the_platform_waits_for_the_hosts(recorded: Recorder) -> None:
    releases = {r.inputs["name"]: r for r in recorded.of("kubernetes:helm.sh/v3:Release")}
    assert set(releases) == {"gpu-operator", "monitoring"}
    assert f"{CONFIGURATION} onprem-dev-configuration" in releases["monitoring"].after
    release = releases["gpu-operator"]
    assert f"{CONFIGURATION} onprem-dev-configuration" in release.after
    assert release.inputs["values"]["driver"] == {"enabled": False}
    assert release.inputs["values"]["toolkit"] == {"enabled": False}


def test_nodes_are_found_by_the_names_of_the_hosts_and_may_join_later(recorded: Recorder) -> None:
    pools = {resource.name: resource.inputs for resource in recorded.of(POOL_NODES)}
    assert set(pools) == {f"pools-{name}" for name in ("a100-mig", "a100-7", "t4-shared", "v100", "cpu")}
    mig = pools["pools-a100-mig"]
    assert mig["selector"] == "kubernetes.io/hostname in (gpu-1,gpu-2)"
    assert mig["mayBeEmpty"] is True
    assert mig["labels"]["gpuform.io/pool"] == "a100-mig"
    assert [taint["key"] for taint in pools["pools-v100"]["taints"]] == [
        "nvidia.com/gpu",
        "example.com/deprecated",
    ]
    layouts = {resource.name: resource.inputs for resource in recorded.of(LAYOUT)}
    assert set(layouts) == {"mig-a100-mig", "mig-a100-7"}
    assert all(inputs["mayBeEmpty"] is True for inputs in layouts.values())


def test_what_a_host_gets_and_its_node_carries_is_one_thing(recorded: Recorder) -> None:
    hosts = json.loads(recorded.one(CONFIGURATION).inputs["inventory"])["_meta"]["hostvars"]
    for pool in recorded.of(POOL_NODES):
        for host in (host_ for host_ in hosts.values() if f"pools-{host_['gpuform_pool']}" == pool.name):
            assert (host["gpuform_labels"], host["gpuform_taints"]) == (
                pool.inputs["labels"],
                pool.inputs["taints"],
            )
