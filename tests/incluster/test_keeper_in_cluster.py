"""The pool keeper on a real API server, with its own account: configures nodes that join later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from infra.plan import pool_keeper, startup
from infra.plan.sharing import NAMESPACE, device_plugin_change, pool_labels, pool_taints
from lab.rehearse.program import Keeper
from tests.build.aws_environments import MIG, aws
from tests.conftest import Plane
from tests.incluster.live_clusters import GROUP, POOL_LABELS, POOL_TAINTS, RESEARCH, KeeperCluster
from tests.provider.nodes.conftest import PoolDriver
from tests.waiting import counted, until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

T4 = RESEARCH.pools[0]


@pytest.fixture(scope="module")
def shared_cluster(control_plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeeperCluster]:
    keeper = Keeper(control_plane.kubeconfig, tmp_path_factory.mktemp("keeper"))
    cluster = KeeperCluster(control_plane, keeper)
    cluster.install()
    yield cluster
    cluster.remove()


@pytest.fixture
def cluster(shared_cluster: KeeperCluster) -> Iterator[KeeperCluster]:
    shared_cluster.keeper.log.unlink(missing_ok=True)
    shared_cluster.keeper.log.touch()
    yield shared_cluster
    shared_cluster.clear()


def test_nodes_that_join_later_get_everything_within_seconds(cluster: KeeperCluster) -> None:
    cluster.add_nodes("t4-0")  # while the keeper does not run
    cluster.add_nodes("worker-0", group="default-worker")
    with cluster.keeper.running():
        cluster.wait_until_in_pool("t4-0")
        cluster.add_nodes("t4-1", "t4-2")  # an autoscaler adds three
        cluster.add_nodes(
            "t4-3", labels={"gpuform.io/pool": "gpu-t4"}
        )  # the one with its pool's label from Magnum
        cluster.wait_until_in_pool("t4-1", "t4-2", "t4-3")
        cluster.add_nodes("a100-0", group="gpu-a100")
        cluster.wait_until_in_pool("a100-0", pool="gpu-a100")
    for name in ("t4-0", "t4-1", "t4-2", "t4-3"):
        assert cluster.labels(name) == POOL_LABELS
        assert cluster.taints(name) == POOL_TAINTS
        assert cluster.events(name) == []
    assert cluster.labels("a100-0") == {
        "gpuform.io/environment": "research",
        "gpuform.io/pool": "gpu-a100",
        "nvidia.com/device-plugin.config": "default",
        "nvidia.com/mig.config": "3g.20gb-2x2g.10gb",
    }
    assert cluster.taints("a100-0") == {key: POOL_TAINTS[key] for key in POOL_TAINTS if key != "team"}
    assert cluster.labels("worker-0") == {}
    assert "a100-0 is in pool gpu-a100, its layout 3g.20gb-2x2g.10gb\n" in cluster.keeper.log.read_text()


def test_a_new_node_of_an_old_name_gets_labels_and_taints_again(cluster: KeeperCluster) -> None:
    with cluster.keeper.running():
        cluster.add_nodes("t4-0")
        cluster.wait_until_in_pool("t4-0")
        cluster.kubectl("delete", "node", "t4-0", "--wait=true")
        cluster.add_nodes("t4-0")
        cluster.wait_until_in_pool("t4-0")
        assert cluster.taints("t4-0") == POOL_TAINTS
        # A kubelet that registers again brings no annotation along; a node with its proof waits for none.
        cluster.add_nodes("t4-1", annotations={"gpuform.io/gpu-ready": "{}"})
        cluster.wait_until_in_pool("t4-1")
        assert cluster.taints("t4-1") == {
            key: POOL_TAINTS[key] for key in POOL_TAINTS if key != "gpuform.io/gpu-not-ready"
        }


def test_what_others_have_set_stays_and_is_said_once(cluster: KeeperCluster) -> None:
    foreign = {"key": "node-role.kubernetes.io/gpu", "value": "yes", "effect": "NoSchedule"}
    other = {"key": "theirs", "value": "x", "effect": "NoExecute"}
    layout, default = ({"nvidia.com/mig.config": name} for name in ("all-1g.5gb", "all-disabled"))
    with cluster.keeper.running():
        cluster.add_nodes("t4-0", labels={"team": "b"}, taints=[foreign, other])
        cluster.add_nodes("a100-0", group="gpu-a100", labels=layout)
        cluster.add_nodes("a100-1", group="gpu-a100", labels=default)
        cluster.add_nodes("t4-1", annotations={"gpuform.io/relayout": "{}"})
        cluster.wait_until_in_pool("t4-0")
        cluster.wait_until_in_pool("a100-0", "a100-1", pool="gpu-a100")
        ((reason, message),) = until(lambda: cluster.events("t4-0"), bool)
    assert cluster.labels("t4-0") == {**POOL_LABELS, "team": "b"}
    assert cluster.taints("t4-0") == {**POOL_TAINTS, "node-role.kubernetes.io/gpu": "yes", "theirs": "x"}
    assert cluster.labels("a100-0")["nvidia.com/mig.config"] == "all-1g.5gb"
    assert (
        cluster.labels("a100-1")["nvidia.com/mig.config"] == "3g.20gb-2x2g.10gb"
    )  # the operator's default is none
    assert reason == "PoolValueOfOthers"
    assert message == (
        "not changed: the taint node-role.kubernetes.io/gpu=yes:NoSchedule, and not 'true'; the label "
        "team=b, and not 'a', as its pool gpu-t4 requires"
    )
    with cluster.keeper.running():
        cluster.add_nodes("t4-2")
        cluster.wait_until_in_pool("t4-2")
    assert len(cluster.events("t4-0")) == 1
    assert cluster.labels("t4-1") == {}  # during a relayout


def test_a_node_that_eks_replaces_gets_its_layout_and_nothing_else(cluster: KeeperCluster) -> None:
    env = aws({"name": "a100", "machine": "p4d.24xlarge", "nodes": 2, "sharing": MIG})
    (program,) = [item for item in pool_keeper.manifests(RESEARCH) if item["kind"] == "ConfigMap"]
    pools = {"pools.json": json.dumps(pool_keeper.pools(env))}
    labels = {"gpuform.io/pool": "a100", "gpuform.io/environment": "labs"}
    taints = [{"key": "gpuform.io/gpu-not-ready", "effect": "NoSchedule"}]
    expected = {**labels, "nvidia.com/mig.config": "3g.20gb-2x2g.10gb"}
    cluster.apply({**program, "data": {**program["data"], **pools}})
    try:
        cluster.add_nodes("proven", labels=labels, annotations={"gpuform.io/gpu-ready": "{}"})
        cluster.add_nodes("other", labels={**labels, "gpuform.io/pool": "b"})
        with cluster.keeper.running():
            cluster.add_nodes("fresh", labels=labels, taints=taints)
            cluster.add_nodes(
                "late", labels={**labels, "nvidia.com/mig.config": "all-disabled"}, taints=taints
            )
            for name in ("fresh", "late"):
                until(lambda name=name: cluster.labels(name), lambda current: current == expected, 10)
                assert cluster.taints(name) == {"gpuform.io/gpu-not-ready": ""}
        assert cluster.labels("proven") == labels
        assert cluster.labels("other") == {**labels, "gpuform.io/pool": "b"}
    finally:
        cluster.apply(program)


def test_labels_of_the_keeper_are_the_programs_to_change_and_to_remove(cluster: KeeperCluster) -> None:
    """The keeper runs all the time, and does not restore what the program removes."""

    async def act() -> None:
        pool_driver = PoolDriver(str(cluster.plane.kubeconfig), "t4", "gpuform:nodes:PoolNodes")
        pool = {
            "selector": f"{GROUP}=gpu-t4",
            "labels": pool_labels(RESEARCH, T4),
            "taints": pool_taints(RESEARCH, T4),
            "startup": startup.startup_change(RESEARCH, T4),
            "sharing": device_plugin_change(RESEARCH, T4),
            "joining": pool_keeper.awaited_nodes(RESEARCH, T4),
            "manager": pool_keeper.field_manager(RESEARCH, T4),
        }
        try:
            creating = asyncio.create_task(pool_driver.create(**pool))
            await asyncio.to_thread(cluster.add_nodes, "t4-0")
            assert (await creating)["nodes"] == ["t4-0"]
            await asyncio.to_thread(cluster.add_nodes, "t4-1")
            await asyncio.to_thread(cluster.wait_until_in_pool, "t4-1")
            assert await pool_driver.changes(**pool) == set()
            changed = {**pool["labels"], "team": "c"}
            del changed["nvidia.com/device-plugin.config"]
            await pool_driver.update(**{**pool, "labels": changed, "sharing": None})
            await asyncio.sleep(3)  # longer than the keeper's interval for listing all nodes
            for name in ("t4-0", "t4-1"):
                assert cluster.labels(name) == changed
        finally:
            await pool_driver.provider.close()

    with cluster.keeper.running():
        asyncio.run(act())


def test_keeper_without_the_right_says_so_once_and_goes_on(cluster: KeeperCluster) -> None:
    bindings = [item for item in pool_keeper.manifests(RESEARCH) if item["kind"] == "ClusterRoleBinding"]
    cluster.kubectl("delete", "clusterrolebinding", bindings[0]["metadata"]["name"])
    with cluster.keeper.running():
        cluster.add_nodes("t4-0")
        until(cluster.keeper.log.read_text, lambda text: "the API server: HTTPError: HTTP Error 403" in text)

        def count_refusals() -> float:
            return counted(cluster.kubectl, "authorization_attempts_total", result="no-opinion")

        before = count_refusals()
        until(count_refusals, lambda now: now >= before + 2)
        assert cluster.keeper.log.read_text().count("403") == 1
        cluster.apply(*bindings)
        cluster.wait_until_in_pool("t4-0")


def test_its_account_may_do_what_it_must_and_nothing_else(cluster: KeeperCluster) -> None:
    nodes = "nodes [] [] [list watch patch]"
    assert cluster.list_rights(f"{NAMESPACE}:pool-keeper", "default") == ["events [] [] [create]", nodes]
    assert cluster.list_rights(f"{NAMESPACE}:pool-keeper", NAMESPACE) == [nodes]


def test_the_strictest_namespace_would_take_its_pod(cluster: KeeperCluster) -> None:
    cluster.require_restricted("pool-keeper")
