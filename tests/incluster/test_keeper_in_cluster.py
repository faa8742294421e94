"""The pool keeper on a real API server, with its own account: configures nodes that join later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from infra.plan import pool_keeper, startup
from infra.plan.sharing import NAMESPACE, device_plugin_change, pool_labels, pool_taints
from lab.rehearse.program import Keeper
from tests.conftest import Plane
from tests.incluster.sites import GIVEN_TAINTS, GROUP, OURS, RESEARCH, KeeperSite
from tests.plan.aws_environments import MIG, aws
from tests.provider.nodes.conftest import Scene
from tests.waiting import counted, until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

T4 = RESEARCH.pools[0]


@pytest.fixture(scope="module")
def installed(control_plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeeperSite]:
    site = KeeperSite(control_plane, Keeper(control_plane.kubeconfig, tmp_path_factory.mktemp("keeper")))
    site.install()
    yield site
    site.remove()


@pytest.fixture
def site(installed: KeeperSite) -> Iterator[KeeperSite]:
    installed.keeper.log.unlink(missing_ok=True)
    installed.keeper.log.touch()
    yield installed
    installed.clear()


def test_nodes_that_join_later_get_everything_within_seconds(site: KeeperSite) -> None:
    site.joins("t4-0")  # while the keeper does not run
    site.joins("worker-0", group="default-worker")
    with site.keeper.running():
        site.in_pool("t4-0")
        site.joins("t4-1", "t4-2")  # an autoscaler adds three
        site.joins("t4-3", labels={"gpuform.io/pool": "gpu-t4"})  # the one with its pool's label from Magnum
        site.in_pool("t4-1", "t4-2", "t4-3")
        site.joins("a100-0", group="gpu-a100")
        site.in_pool("a100-0", pool="gpu-a100")
    for name in ("t4-0", "t4-1", "t4-2", "t4-3"):
        assert site.labels(name) == OURS
        assert site.taints(name) == GIVEN_TAINTS
        assert site.events(name) == []
    assert site.labels("a100-0") == {
        "gpuform.io/environment": "research",
        "gpuform.io/pool": "gpu-a100",
        "nvidia.com/device-plugin.config": "default",
        "nvidia.com/mig.config": "3g.20gb-2x2g.10gb",
    }
    assert site.taints("a100-0") == {key: GIVEN_TAINTS[key] for key in GIVEN_TAINTS if key != "team"}
    assert site.labels("worker-0") == {}
    assert "a100-0 is in pool gpu-a100, its layout 3g.20gb-2x2g.10gb\n" in site.keeper.log.read_text()


def test_a_node_that_takes_the_place_of_another_gets_it_again(site: KeeperSite) -> None:
    with site.keeper.running():
        site.joins("t4-0")
        site.in_pool("t4-0")
        site.kubectl("delete", "node", "t4-0", "--wait=true")
        site.joins("t4-0")
        site.in_pool("t4-0")
        assert site.taints("t4-0") == GIVEN_TAINTS
        # A kubelet that registers again brings no annotation along; a node with its proof waits for none.
        site.joins("t4-1", notes={"gpuform.io/gpu-ready": "{}"})
        site.in_pool("t4-1")
        assert site.taints("t4-1") == {
            key: GIVEN_TAINTS[key] for key in GIVEN_TAINTS if key != "gpuform.io/gpu-not-ready"
        }


def test_what_others_have_set_stays_and_is_said_once(site: KeeperSite) -> None:
    theirs = {"key": "node-role.kubernetes.io/gpu", "value": "yes", "effect": "NoSchedule"}
    other = {"key": "theirs", "value": "x", "effect": "NoExecute"}
    layout, default = ({"nvidia.com/mig.config": name} for name in ("all-1g.5gb", "all-disabled"))
    with site.keeper.running():
        site.joins("t4-0", labels={"team": "b"}, taints=[theirs, other])
        site.joins("a100-0", group="gpu-a100", labels=layout)
        site.joins("a100-1", group="gpu-a100", labels=default)
        site.joins("t4-1", notes={"gpuform.io/relayout": "{}"})
        site.in_pool("t4-0")
        site.in_pool("a100-0", "a100-1", pool="gpu-a100")
        ((reason, message),) = until(lambda: site.events("t4-0"), bool)
    assert site.labels("t4-0") == {**OURS, "team": "b"}
    assert site.taints("t4-0") == {**GIVEN_TAINTS, "node-role.kubernetes.io/gpu": "yes", "theirs": "x"}
    assert site.labels("a100-0")["nvidia.com/mig.config"] == "all-1g.5gb"
    assert (
        site.labels("a100-1")["nvidia.com/mig.config"] == "3g.20gb-2x2g.10gb"
    )  # the operator's default is none
    assert reason == "PoolValueOfOthers"
    assert message == (
        "not changed: the taint node-role.kubernetes.io/gpu=yes:NoSchedule, and not 'true'; the label "
        "team=b, and not 'a', as its pool gpu-t4 requires"
    )
    with site.keeper.running():
        site.joins("t4-2")
        site.in_pool("t4-2")
    assert len(site.events("t4-0")) == 1
    assert site.labels("t4-1") == {}  # during a relayout


def test_a_node_that_eks_replaces_gets_its_layout_and_nothing_else(site: KeeperSite) -> None:
    env = aws({"name": "a100", "machine": "p4d.24xlarge", "nodes": 2, "sharing": MIG})
    (program,) = [one for one in pool_keeper.manifests(RESEARCH) if one["kind"] == "ConfigMap"]
    pools = {"pools.json": json.dumps(pool_keeper.pools(env))}
    born = {"gpuform.io/pool": "a100", "gpuform.io/environment": "labs"}
    taints = [{"key": "gpuform.io/gpu-not-ready", "effect": "NoSchedule"}]
    wanted = {**born, "nvidia.com/mig.config": "3g.20gb-2x2g.10gb"}
    site.apply({**program, "data": {**program["data"], **pools}})
    try:
        site.joins("proven", labels=born, notes={"gpuform.io/gpu-ready": "{}"})
        site.joins("other", labels={**born, "gpuform.io/pool": "b"})
        with site.keeper.running():
            site.joins("fresh", labels=born, taints=taints)
            site.joins("late", labels={**born, "nvidia.com/mig.config": "all-disabled"}, taints=taints)
            for name in ("fresh", "late"):
                until(lambda name=name: site.labels(name), lambda has: has == wanted, 10)
                assert site.taints(name) == {"gpuform.io/gpu-not-ready": ""}
        assert site.labels("proven") == born
        assert site.labels("other") == {**born, "gpuform.io/pool": "b"}
    finally:
        site.apply(program)


def test_what_it_gave_is_the_programs_to_change_and_to_take(site: KeeperSite) -> None:
    """The keeper runs all the time, and does not restore what the program removes."""

    async def act() -> None:
        scene = Scene(str(site.plane.kubeconfig), "t4", "gpuform:nodes:PoolNodes")
        pool = {
            "selector": f"{GROUP}=gpu-t4",
            "labels": pool_labels(RESEARCH, T4),
            "taints": pool_taints(RESEARCH, T4),
            "startup": startup.until_proven(RESEARCH, T4),
            "sharing": device_plugin_change(RESEARCH, T4),
            "joining": pool_keeper.joining(RESEARCH, T4),
            "manager": pool_keeper.manager(RESEARCH, T4),
        }
        try:
            creating = asyncio.create_task(scene.create(**pool))
            await asyncio.to_thread(site.joins, "t4-0")
            assert (await creating)["nodes"] == ["t4-0"]
            await asyncio.to_thread(site.joins, "t4-1")
            await asyncio.to_thread(site.in_pool, "t4-1")
            assert await scene.changes(**pool) == set()
            changed = {**pool["labels"], "team": "c"}
            del changed["nvidia.com/device-plugin.config"]
            await scene.update(**{**pool, "labels": changed, "sharing": None})
            await asyncio.sleep(3)  # longer than the keeper's interval for listing all nodes
            for name in ("t4-0", "t4-1"):
                assert site.labels(name) == changed
        finally:
            await scene.provider.close()

    with site.keeper.running():
        asyncio.run(act())


def test_without_the_right_it_says_so_once_and_goes_on(site: KeeperSite) -> None:
    bindings = [one for one in pool_keeper.manifests(RESEARCH) if one["kind"] == "ClusterRoleBinding"]
    site.kubectl("delete", "clusterrolebinding", bindings[0]["metadata"]["name"])
    with site.keeper.running():
        site.joins("t4-0")
        until(site.keeper.log.read_text, lambda text: "the API server: HTTPError: HTTP Error 403" in text)

        def refused() -> float:
            return counted(site.kubectl, "authorization_attempts_total", result="no-opinion")

        before = refused()
        until(refused, lambda now: now >= before + 2)
        assert site.keeper.log.read_text().count("403") == 1
        site.apply(*bindings)
        site.in_pool("t4-0")


def test_its_account_may_do_what_it_must_and_nothing_else(site: KeeperSite) -> None:
    nodes = "nodes [] [] [list watch patch]"
    assert site.rights(f"{NAMESPACE}:pool-keeper", "default") == ["events [] [] [create]", nodes]
    assert site.rights(f"{NAMESPACE}:pool-keeper", NAMESPACE) == [nodes]


def test_the_strictest_namespace_would_take_its_pod(site: KeeperSite) -> None:
    site.require_restricted("pool-keeper")
