"""An invalid inventory is refused before any host is contacted: none of these hosts exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpuform.hosts.runner import run

pytestmark = pytest.mark.hosts

GOOD = {
    "ansible_host": "192.0.2.1",  # RFC 5737: not assigned to any host
    "gpuform_environment": "lab",
    "gpuform_pool": "t4",
    "validate_inventory_gpu": {"model": "T4", "product": "Tesla T4", "count": 1},
    "nvidia_driver_version": "580.95.05",
    "nvidia_driver_branch": "580",
}
GROUPS = {"kube_node": ["a"], "gpu": ["a"], "pool_t4": ["a"]}


UNDECLARED = "a: is in the group gpu, but its GPUs or its driver are not declared; give validate_inventory"
NO_GPU = {"validate_inventory_gpu": {"model": "T4", "product": "Tesla T4", "count": 0}}


@pytest.mark.parametrize(
    ("groups", "variables", "message"),
    [
        (
            {"others": ["a"]},
            {},
            "a: is in neither kube_control_plane nor kube_node, so nothing would be done",
        ),
        (
            {"kube_node": ["a"], "pool_t4": ["a"], "pool_v100": ["a"]},
            {},
            "a: is in pool_t4, pool_v100, gpuform_pool says t4; put it into exactly one group pool_NAME and",
        ),
        (
            {"kube_node": ["a"], "pool_t4": ["a"]},
            {"gpuform_pool": "v100"},
            "a: is in pool_t4, gpuform_pool says v100; put it into exactly one group pool_NAME",
        ),
        (GROUPS, {"nvidia_driver_version": "580"}, UNDECLARED),
        (GROUPS, NO_GPU, UNDECLARED),
        (
            {name: ["a", "b"] for name in GROUPS},
            {},
            "Two hosts of the inventory share an address and a port: 192.0.2.1:22 192.0.2.1:22; give",
        ),
        (GROUPS, {"gpuform_environment": None}, "gpuform_environment"),
    ],
)
def test_an_invalid_inventory_is_refused_with_fact_and_remedy(
    groups: Mapping[str, list[str]], variables: Mapping[str, Any], message: str
) -> None:
    given = {**GOOD, **variables}
    named = sorted({host for hosts in groups.values() for host in hosts})
    kept = {key: value for key, value in given.items() if value is not None}
    inventory = {
        "_meta": {"hostvars": {host: kept for host in named}},
        "all": {"children": list(groups)},
        **{group: {"hosts": hosts} for group, hosts in groups.items()},
    }
    done = run("site.yml", inventory)
    assert not done.ok
    assert message in " ".join(result.message for result in done.hosts.values())
    assert not any(result.unreachable for result in done.hosts.values())
