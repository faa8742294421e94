"""The stand-in against the real Magnum API, without an engine: what is refused, and in what order."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuform.plugins.handler import PluginError
from tests.openstack import tables
from tests.openstack.world import TEMPLATE, World
from tests.plugins.openstack.driving import CLUSTER, GROUP, Driver
from tests.plugins.openstack.driving import TEMPLATE as TEMPLATE_TYPE

pytestmark = [pytest.mark.engine, pytest.mark.nightly]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gpuform.plugins.openstack.waiting._FIRST_S", 0.3)
    monkeypatch.setattr("gpuform.plugins.openstack.waiting._LONGEST_S", 0.5)
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))


def test_bounds_upgrade_and_import(world: World) -> None:
    world.template()
    other = world.template("kubernetes-1.31.1-1")
    config = {"cloud": world.cloud}
    cluster = Driver(CLUSTER, config=config, name="cluster", timeout=60)
    wanted = {"name": "research", "clusterTemplateId": TEMPLATE}
    made = cluster.up(**wanted)
    assert made["kubeconfig"]["client_certificate"].startswith("-----BEGIN CERTIFICATE")
    assert made["nodeCount"] == 1

    group = Driver(GROUP, config=config, name="group", timeout=60)
    declared = {"clusterId": cluster.id, "name": "gpu", "flavorId": "g2.5xlarge", "role": "gpu"}
    group.up(**declared, nodeCount=1, minNodeCount=1, maxNodeCount=2)
    # Each step alone Magnum would refuse: a minimum above the size, a size above the maximum.
    grown = group.up(**declared, nodeCount=4, minNodeCount=4, maxNodeCount=8)
    assert (grown["nodeCount"], grown["minNodeCount"], grown["maxNodeCount"]) == (4, 4, 8)
    shrunk = group.up(**declared, nodeCount=0, minNodeCount=0)
    assert (shrunk["nodeCount"], shrunk["minNodeCount"], shrunk["maxNodeCount"]) == (0, 0, 0)
    assert group.steps == ["create", "update", "update"]

    cluster.up(**wanted | {"clusterTemplateId": other.uuid})
    assert world.requests(changes=True)[-1].path == f"/v1/clusters/{cluster.id}/actions/upgrade"

    imported = Driver(GROUP, config=config, id="research/gpu")
    assert imported.refresh()
    assert imported.inputs["flavorId"] == "g2.5xlarge"
    assert imported.id.endswith(group.id.partition("/")[2])

    group.down()
    cluster.down()
    assert world.clusters() == []


def test_a_template_in_use_is_not_changed_and_a_name_is_not_taken_twice(world: World) -> None:
    config = {"cloud": world.cloud}
    own = {"name": "own", "coe": "kubernetes", "image": tables.IMAGE, "externalNetworkId": tables.EXTERNAL}
    own |= {"flavor": "m2.medium", "masterFlavor": "m2.medium"}  # without, Magnum refuses to change it
    template = Driver(TEMPLATE_TYPE, config=config, name="template")
    template.up(**own, labels={"a": "b"}, networkDriver="calico")
    template.up(**own, labels={"a": "c"}, networkDriver="calico", dnsNameserver="8.8.8.8")
    assert template.shown["labels"] == {"a": "c"}
    with pytest.raises(PluginError, match="one of this name already"):
        Driver(TEMPLATE_TYPE, config=config, name="another").up(**own)
    cluster = Driver(CLUSTER, config=config, name="cluster", timeout=60)
    cluster.up(name="research", clusterTemplateId=template.id, keypair=tables.KEYPAIR)
    with pytest.raises(PluginError, match="clusters use it"):
        template.up(**own, labels={"a": "d"}, networkDriver="calico", dnsNameserver="8.8.8.8")
    cluster.down()
    template.down()
