"""The preflight of our own cluster template: its references, its effects, and what the cloud lacks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.preflight.looking import EXTERNAL, IMAGE, INSIDE, T4, declared, look, own
from tests.preflight.made_up_cloud import MadeUp

pytestmark = pytest.mark.unit


def test_a_template_of_our_own_needs_what_it_names_and_what_it_makes(cloud: MadeUp) -> None:
    found = look(cloud, own(cloud))
    assert {one.subject for one in found.values() if one.verdict == "FAIL"} == set()
    assert found["image fedora-coreos-40"].fact == "os_distro fedora-coreos"
    assert found["external network ext"].fact == "external"
    assert found["network inside"].fact == "1 subnet(s)"
    assert found["subnet nodes"].fact == "10.0.0.0/24"
    assert found["quota of volumes"].fact.startswith("8 more at most")
    assert found["quota of volumes' size (GiB)"].fact.startswith("400 more at most")
    assert found["quota of floating IPs"].fact.startswith("9 more at most"), "eight nodes and the API"
    assert found["quota of load balancers"].fact == "2 more at most (masters 2); 0 of 2 taken"


@pytest.mark.parametrize(
    ("has", "subject", "fact"),
    [
        ({"images": [IMAGE | {"os_distro": None}]}, "image fedora-coreos-40", "has no os_distro"),
        ({"images": [IMAGE, IMAGE | {"id": "i-2"}]}, "image fedora-coreos-40", "2 images have this name"),
        ({"images": [IMAGE | {"status": "queued"}]}, "image fedora-coreos-40", "is queued"),
        (
            {"images": [IMAGE | {"kube_version": "v1.31.0"}]},
            "image fedora-coreos-40",
            "gives Kubernetes 1.31",
        ),
        ({"images": []}, "image fedora-coreos-40", "glance has no such image"),
        ({"networks": [INSIDE]}, "external network ext", "no such external network; it has none"),
        ({"networks": [EXTERNAL]}, "network inside", "neutron has no such network"),
        ({"networks": [EXTERNAL, INSIDE | {"subnets": []}]}, "network inside", "has no subnet"),
        ({"subnets": []}, "subnet nodes", "neutron has no such subnet"),
        (
            {"subnets": [{"id": "s-1", "name": "nodes", "network_id": "n-9", "cidr": "10.1.0.0/24"}]},
            "subnet nodes",
            "is not in network inside",
        ),
        ({"balancers": [{"id": "b"}]}, "quota of load balancers", "1 of 2 taken"),
    ],
)
def test_what_a_template_of_our_own_lacks(
    cloud: MadeUp, has: dict[str, Any], subject: str, fact: str
) -> None:
    env = own(cloud)
    for name, value in has.items():
        setattr(cloud, name, value)
    found = look(cloud, env)[subject]
    assert found.verdict == "FAIL"
    assert fact in found.fact


@pytest.mark.parametrize(
    ("where", "named"), [("hidden", "fedora-coreos-39"), ("hidden", "i-0"), ("community", "i-0")]
)
def test_an_image_that_glance_does_not_list_is_found_as_magnum_finds_it(
    cloud: MadeUp, where: str, named: str
) -> None:
    setattr(cloud, where, [IMAGE | {"id": "i-0", "name": "fedora-coreos-39"}])
    found = look(cloud, declared(T4 | {"openstack": {"image": named}}))[f"image {named}"]
    assert (found.verdict, found.fact) == ("PASS", "os_distro fedora-coreos")


def test_a_service_whose_policy_lets_nobody_ask_is_neither_failed_nor_passed(cloud: MadeUp) -> None:
    cloud.refused = {"octavia": 403, "neutron": 500}
    found = look(cloud, own(cloud))
    balancers = found["quota of load balancers"]
    assert (balancers.verdict, balancers.fact[:50]) == (
        "SKIP",
        "not checked: the caller has no permission for GET ",
    )
    assert (found["network inside"].verdict, found["quota of ports"].verdict) == ("SKIP", "SKIP")
    assert "HTTP 500" in found["quota of ports"].fact
