"""Deletions: bounded, with what blocks them named, and finished by the next run."""

from __future__ import annotations

import pytest

from gpuform.openstack.blockers import blockers
from gpuform.openstack.cloud import Refused, connect
from gpuform.plugins.handler import PluginError
from gpuform.plugins.openstack.api import ApiError, Magnum
from tests.plugins.openstack.driving import CLUSTER, GROUP, WANTED, Driver
from tests.plugins.openstack.fake import Fake

pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("quick")]


def test_a_stuck_delete_is_bounded_and_names_what_blocks(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    uuid = driver.id
    fake.hangs = True
    fake.blocking = {
        "octavia": [
            {
                "id": "lb-1",
                "name": f"kube_service_{uuid}_default_web",
                "provisioning_status": "ERROR",
                "description": f"Kubernetes external service default/web from cluster {uuid}",
            },
            {"id": "lb-2", "name": "somebody's", "description": "", "provisioning_status": "ACTIVE"},
            {"id": "lb-3", "name": "research-2-api", "description": "", "provisioning_status": "ACTIVE"},
            {
                "id": "lb-4",
                "name": "kube_service_web",
                "description": f"Kubernetes external service default/web from cluster {uuid}0",
            },
        ],
        "neutron": [
            {"id": "port-1", "name": "research-abc-node-0", "device_owner": "compute:nova"},
            {"id": "port-2", "name": "researchers", "device_owner": ""},
        ],
        "heat": [
            {
                "resource_name": "fixed_subnet",
                "resource_type": "OS::Neutron::Subnet",
                "resource_status": "DELETE_FAILED",
                "resource_status_reason": "Conflict: ports still in use",
                "physical_resource_id": "sub-1",
            },
            {"resource_name": "api", "resource_status": "CREATE_COMPLETE"},
        ],
    }
    driver.timeout = 0.2
    with pytest.raises(PluginError, match="cluster research: still DELETE_IN_PROGRESS after") as raised:
        driver.down()
    said = str(raised.value)
    for words in (
        f"load balancer kube_service_{uuid}_default_web (lb-1, ERROR)",
        "openstack loadbalancer delete --cascade lb-1",
        "port research-abc-node-0 (port-1, of compute:nova, by its name alone: look whose it is): openstack ",
        "openstack port delete port-1",
        "resource fixed_subnet (OS::Neutron::Subnet sub-1): DELETE_FAILED Conflict: ports still in use",
        "run the same command again, which goes on",
    ):
        assert words in said
    assert not any(other in said for other in ("lb-2", "lb-3", "lb-4", "port-2", "resource api"))


def test_the_next_run_waits_for_a_deletion_and_does_not_ask_again(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    fake.hangs, driver.timeout = True, 0.2
    with pytest.raises(PluginError, match="no load balancer, port or stack is named"):
        driver.down()
    fake._moves[driver.id] = [1, "DELETE_COMPLETE", None]
    driver.timeout = 20
    driver.down()
    assert fake.clusters == {}
    assert sum(method == "DELETE" for method, _, _ in fake.requests) == 1


def test_a_failed_deletion_is_asked_for_again(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    fake.refuses_delete = "Timeout waiting for the load balancers to be deleted"
    with pytest.raises(PluginError, match="DELETE_FAILED: Timeout waiting for the load balancers"):
        driver.down()
    fake.refuses_delete = ""
    driver.down()
    assert fake.clusters == {}


@pytest.mark.usefixtures("impatient")
def test_a_deletion_that_fails_again_with_the_same_words_is_told_again(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    fake.refuses_delete = "Subnet in use"
    for _ in range(2):
        with pytest.raises(PluginError, match="DELETE_FAILED: Subnet in use"):
            driver.down()


@pytest.mark.parametrize("hangs", [False, True])
def test_magnum_s_reason_is_told_where_nobody_says_what_blocks(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    """A group's end asks for its cluster to find what blocks; an error of that one is not the reason."""
    driver = Driver(GROUP)
    driver.up(clusterId=fake.ready()["uuid"], name="gpu-t4", flavorId="g2.5xlarge", nodeCount=1)
    fake.hangs, fake.refuses_delete = hangs, "" if hangs else "Subnet in use"
    driver.timeout = 0.2 if hangs else 20

    async def refused(self: Magnum, key: str) -> None:
        raise ApiError(Refused(f"openstack coe cluster show {key}", 403, "Policy doesn't allow it"))

    monkeypatch.setattr(Magnum, "cluster", refused)
    why = "still DELETE_IN_PROGRESS after" if hangs else "DELETE_FAILED: Subnet in use"
    with pytest.raises(PluginError, match=f"node group gpu-t4: {why}") as raised:
        driver.down()
    said = str(raised.value)
    assert "what is in its way could not be asked (openstack coe cluster show" in said
    assert "HTTP 403: Policy doesn't allow it" in said
    assert said.endswith("run the same command again, which goes on")


def test_ports_are_a_cluster_s_by_its_stack_or_its_uuid_and_by_name_only_perhaps(fake: Fake) -> None:
    """Heat shows the kinds of Magnum's templates by the names that these give them."""
    uuid = "1e9b89de-354f-4255-bfb0-379dccc92c77"
    kinds = {"Magnum::Optional::Neutron::Net": "net-own", "OS::Neutron::Port": "port-own"}
    ports = {
        "port-own": {"name": "", "network_id": "net-shared"},
        "port-vip": {"name": "octavia-lb-vrrp", "network_id": "net-own", "device_owner": "Octavia"},
        "port-cni": {"name": "x", "description": f"of {uuid}", "network_id": "net-shared"},
        "port-dhcp": {"name": "", "network_id": "net-own", "device_owner": "network:dhcp"},
        "port-other": {"name": "research-2-node-0", "network_id": "net-shared"},
        "port-far": {"name": "researchers", "network_id": "net-shared"},
    }
    fake.blocking = {
        "heat": [{"id": of, "resource_type": one, "physical_resource_id": of} for one, of in kinds.items()],
        "neutron": [{"id": id, **one} for id, one in reversed(ports.items())],
    }
    found = blockers(connect("cern"), {"uuid": uuid, "name": "research", "stack_id": "s-1"})
    assert [line.rpartition(": ")[2] for line in found] == [
        f"openstack port delete {id}" for id in ("port-cni", "port-vip", "port-own", "port-other")
    ]
    assert [line for line in found if "look whose it is" in line] == found[3:]


def test_what_blocks_is_looked_for_on_every_page(fake: Fake) -> None:
    fake.page = 2
    uuid = "1e9b89de-354f-4255-bfb0-379dccc92c77"
    others = [
        {"id": f"other-{n}", "name": f"other-{n}", "description": "", "provisioning_status": "ACTIVE"}
        for n in range(4)
    ]
    said = f"Kubernetes external service default/web from cluster {uuid}"
    balancer = {"id": "lb-1", "name": "web", "description": said, "provisioning_status": "ERROR"}
    port = {"id": "port-1", "name": "research-node-0", "device_owner": "compute:nova"}
    fake.blocking = {"octavia": [*others, balancer], "neutron": [*others, port]}
    found = blockers(connect("cern"), {"uuid": uuid, "name": "research"})
    assert [line.split(":")[0] for line in found] == [
        "load balancer web (lb-1, ERROR)",
        "port research-node-0 (port-1, of compute",
    ]
    asked = [path for _, path, _ in fake.requests if "lbaas" in path]
    assert len(asked) == 3
