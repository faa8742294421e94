"""A node group: what is sent, and that size and bounds change in an order that Magnum takes."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.openstack.cloud import Refused
from gpuform.plugins.handler import PluginError
from gpuform.plugins.openstack.api import ApiError, Magnum
from tests.plugins.openstack.driving import GROUP, Driver
from tests.plugins.openstack.fake import Fake

pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("quick")]


@pytest.fixture
def cluster(fake: Fake) -> str:
    """A cluster that is there."""
    return str(fake.ready()["uuid"])


def wanted(cluster: str, **more: Any) -> dict[str, Any]:
    return {"clusterId": cluster, "name": "gpu-t4", "flavorId": "g2.5xlarge", "nodeCount": 1, **more}


def sent(fake: Fake) -> list[Any]:
    return [body for _, _, body in fake.changes()]


def test_what_is_asked_for_is_what_the_program_says(fake: Fake, cluster: str) -> None:
    driver = Driver(GROUP)
    made = driver.up(**wanted(cluster, role="gpu", mergeLabels=False, minNodeCount=0))
    path = f"/magnum/v1/clusters/{cluster}/nodegroups/"
    body = {"name": "gpu-t4", "flavor_id": "g2.5xlarge", "node_count": 1, "role": "gpu"}
    assert fake.changes() == [("POST", path, body)]
    assert driver.id == f"{cluster}/{next(reversed(fake.groups))}"
    assert (made["clusterId"], made["nodeCount"], made["maxNodeCount"]) == (cluster, 1, 0)


def test_the_same_again_asks_nothing(fake: Fake, cluster: str) -> None:
    driver = Driver(GROUP)
    driver.up(**wanted(cluster))
    fake.requests.clear()
    driver.up(**wanted(cluster))
    assert (fake.requests, driver.steps) == ([], ["create"])


def test_a_group_may_be_empty(fake: Fake, cluster: str) -> None:
    driver = Driver(GROUP)
    assert driver.up(**wanted(cluster) | {"nodeCount": 0})["nodeCount"] == 0
    assert driver.up(**wanted(cluster) | {"nodeCount": 2})["nodeCount"] == 2
    assert driver.up(**wanted(cluster) | {"nodeCount": 0})["nodeCount"] == 0


@pytest.mark.parametrize(
    ("before", "after", "asked"),
    [
        ({"nodeCount": 1}, {"nodeCount": 3}, ["resize 3"]),
        ({"minNodeCount": 1, "maxNodeCount": 4}, {"minNodeCount": 1, "maxNodeCount": 6}, ["max 6"]),
        ({"maxNodeCount": 4}, {}, ["max none"]),
        # growing beyond what the bounds allow: the bounds first
        ({"nodeCount": 2, "maxNodeCount": 2}, {"nodeCount": 5, "maxNodeCount": 6}, ["max 6", "resize 5"]),
        # a larger minimum than there are nodes: nodes first, and for them a larger maximum
        (
            {"minNodeCount": 1, "maxNodeCount": 2},
            {"minNodeCount": 4, "maxNodeCount": 8},
            ["max 8", "resize 4", "min 4"],
        ),
        # shrinking below the old minimum, to a smaller maximum
        (
            {"nodeCount": 4, "minNodeCount": 4, "maxNodeCount": 8},
            {"nodeCount": 1, "minNodeCount": 1, "maxNodeCount": 2},
            ["min 1", "resize 1", "max 2"],
        ),
    ],
)
def test_size_and_bounds_in_an_order_that_magnum_takes(
    fake: Fake, cluster: str, before: dict[str, int], after: dict[str, int], asked: list[str]
) -> None:
    driver = Driver(GROUP)
    driver.up(**wanted(cluster) | before)
    fake.requests.clear()
    made = driver.up(**wanted(cluster) | after)
    words = []
    for body in sent(fake):
        if isinstance(body, dict):
            words.append(f"resize {body['node_count']}")
        else:
            words += [f"{one['path'][1:4]} {one.get('value', 'none')}" for one in body]
    assert words == asked
    assert {key: made[key] for key in after} == after


def test_what_the_autoscaler_did_is_kept_when_bounds_change(fake: Fake, cluster: str) -> None:
    driver = Driver(GROUP)
    bounds = {"minNodeCount": 1, "maxNodeCount": 4}
    driver.up(**wanted(cluster, **bounds))
    group = fake.groups[driver.id.split("/")[1]]
    group["node_count"] = 3
    fake.requests.clear()
    driver.up(**wanted(cluster, minNodeCount=2, maxNodeCount=6))
    assert group["node_count"] == 3
    assert len(sent(fake)) == 1


def test_a_group_without_bounds_any_more_has_the_declared_size(fake: Fake, cluster: str) -> None:
    """The number that is declared is the one that the engine has known all along; the autoscaler's is not."""
    driver = Driver(GROUP)
    driver.up(**wanted(cluster, nodeCount=1, minNodeCount=1, maxNodeCount=4))
    group = fake.groups[driver.id.split("/")[1]]
    group["node_count"] = 3
    driver.up(**wanted(cluster, nodeCount=1, minNodeCount=0))
    assert (group["node_count"], group["max_node_count"]) == (1, None)


def test_a_maximum_below_what_there_is_is_told_and_nothing_asked(fake: Fake, cluster: str) -> None:
    """Magnum answers a bare 409; taking nodes away that the autoscaler has in use is not for us."""
    driver = Driver(GROUP)
    driver.up(**wanted(cluster, minNodeCount=1, maxNodeCount=6))
    fake.groups[driver.id.split("/")[1]]["node_count"] = 5
    fake.requests.clear()
    with pytest.raises(PluginError, match="node group gpu-t4: has 5 nodes, and 1 to 4 are asked") as raised:
        driver.up(**wanted(cluster, minNodeCount=1, maxNodeCount=4))
    said = str(raised.value)
    assert "drain 1 and run 'openstack coe cluster resize --nodegroup gpu-t4 --nodes-to-remove" in said
    assert f"{cluster} 4'" in said
    assert "set elastic.max.nodes to 5 or more, or nodes: 4 in place of elastic" in said
    assert fake.changes() == []

    fake.groups[driver.id.split("/")[1]]["node_count"] = 4
    assert driver.up(**wanted(cluster, minNodeCount=1, maxNodeCount=4))["maxNodeCount"] == 4


@pytest.mark.parametrize(
    ("present", "later", "bounds", "said"),
    [
        (3, 5, (1, 4), "has 5 nodes, and 1 to 4 are asked for"),
        (3, 1, (2, 6), "has 1 node, .* 2 to 6 are asked for.*run the same command again.*makes them 2"),
    ],
)
def test_what_the_autoscaler_does_meanwhile_is_told(
    fake: Fake,
    cluster: str,
    monkeypatch: pytest.MonkeyPatch,
    present: int,
    later: int,
    bounds: tuple[int, int],
    said: str,
) -> None:
    """The number changes between our look and Magnum's."""
    driver = Driver(GROUP)
    driver.up(**wanted(cluster, minNodeCount=1, maxNodeCount=6))
    group = fake.groups[driver.id.split("/")[1]]
    group["node_count"] = present
    patched = Magnum.patch_group

    async def meanwhile(self: Magnum, *args: Any) -> None:
        group["node_count"] = later
        await patched(self, *args)

    monkeypatch.setattr(Magnum, "patch_group", meanwhile)
    with pytest.raises(PluginError, match=said):
        driver.up(**wanted(cluster, minNodeCount=bounds[0], maxNodeCount=bounds[1]))


def test_bounds_that_cross_are_told(fake: Fake, cluster: str) -> None:
    driver = Driver(GROUP)
    driver.up(**wanted(cluster, minNodeCount=1, maxNodeCount=6))
    with pytest.raises(PluginError, match=r"is asked for 4 to 2 nodes; make elastic\.min at most"):
        driver.up(**wanted(cluster, minNodeCount=4, maxNodeCount=2))


def test_another_conflict_keeps_magnum_s_words(
    fake: Fake, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(GROUP)
    driver.up(**wanted(cluster, maxNodeCount=4))

    async def refused(self: Magnum, *args: Any) -> None:
        raise ApiError(Refused("openstack coe nodegroup update", 409, "Cluster is being updated"))

    monkeypatch.setattr(Magnum, "patch_group", refused)
    with pytest.raises(PluginError, match="HTTP 409: Cluster is being updated"):
        driver.up(**wanted(cluster, maxNodeCount=6))


@pytest.mark.parametrize(
    "change", [{"flavorId": "g1"}, {"role": "cpu"}, {"imageId": "i"}, {"clusterId": "c"}]
)
def test_what_needs_a_new_group(fake: Fake, cluster: str, change: dict[str, str]) -> None:
    driver = Driver(GROUP)
    driver.up(**wanted(cluster))
    found = driver.ask("diff", driver.id, driver.inputs, driver.outputs, {**driver.inputs, **change})
    assert (list(found.replaces), found.delete_before_replace) == (list(change), True)


def test_importing_by_cluster_and_group(fake: Fake, cluster: str) -> None:
    Driver(GROUP).up(**wanted(cluster))
    driver = Driver(GROUP, id=f"{cluster}/gpu-t4")
    assert driver.refresh()
    assert driver.id == f"{cluster}/{next(reversed(fake.groups))}"
    assert driver.inputs["flavorId"] == "g2.5xlarge"


@pytest.mark.parametrize("id", ["one", "a/", "/b", "a/b/c"])
def test_an_id_of_another_form(fake: Fake, id: str) -> None:
    with pytest.raises(PluginError, match="is not CLUSTER/GROUP"):
        Driver(GROUP, id=id).refresh()


def test_deleting_a_group_of_a_cluster_that_is_gone(fake: Fake, cluster: str) -> None:
    driver = Driver(GROUP)
    driver.up(**wanted(cluster))
    fake.clusters.clear()
    fake.groups.clear()
    driver.down()


def test_less_than_nothing(fake: Fake, cluster: str) -> None:
    found = Driver(GROUP).ask("check", {}, wanted(cluster) | {"nodeCount": -1})
    assert list(found.failures) == [("nodeCount", "must be at least 0")]
