"""The bed itself: real services answer correctly, played ones follow instructions, nothing is left."""

from __future__ import annotations

import pytest
from magnumclient import exceptions

from tests.openstack.world import TEMPLATE, World

pytestmark = [pytest.mark.engine, pytest.mark.nightly]


def test_told_to_fail_a_cluster_says_why_and_goes_away_after_a_deletion_that_hung(world: World) -> None:
    world.template()
    world.tell(fail="Failed to create trustee or trust")
    magnum = world.magnum()
    magnum.clusters.create(name="research", cluster_template_id=TEMPLATE, node_count=1, master_count=1)
    failed = world.settled("research")
    assert (failed.status, failed.status_reason) == ("CREATE_FAILED", "Failed to create trustee or trust")
    world.tell(hang=True)
    magnum.clusters.delete("research")
    with pytest.raises(AssertionError, match="'status': 'DELETE_IN_PROGRESS'"):
        world.settled("research", timeout=2)
    world.tell()
    with pytest.raises(exceptions.NotFound):
        world.settled("research")
    assert world.neighbours.unknown == []


def test_nodes_to_remove_are_those_that_go(world: World) -> None:
    world.template()
    magnum = world.magnum()
    made = magnum.clusters.create(name="research", cluster_template_id=TEMPLATE, node_count=3, master_count=1)
    world.settled("research")
    first, second, third = world.nodes(made.uuid)["default-worker"]
    magnum.clusters.resize("research", 2, nodes_to_remove=[second["id"]])
    assert world.settled("research").node_count == 2
    assert world.nodes(made.uuid)["default-worker"] == [first, third]
    magnum.clusters.resize("research", 3)
    world.settled("research")
    assert world.nodes(made.uuid)["default-worker"][2]["name"] == "research-default-worker-3"


def test_a_project_sees_only_its_own(world: World) -> None:
    assert world.clusters() == []
    assert world.requests(changes=True) == []
