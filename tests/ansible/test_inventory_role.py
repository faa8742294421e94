"""An invalid inventory is refused before any host is contacted: none of these hosts exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
GROUPS = ("kube_node", "gpu", "pool_t4")
ALL = (*GROUPS, "pool_v100", "others")
UNDECLARED = "is in the group gpu, but its GPUs or its driver are not declared; give validate_inventory"
NO_GPU = {"validate_inventory_gpu": {"model": "T4", "product": "Tesla T4", "count": 0}}


@dataclass
class Bad:
    """A host, named as its key below, with what the inventory says of it and what it is refused for."""

    message: str
    groups: tuple[str, ...] = GROUPS
    variables: Mapping[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize(
    "hosts",
    [  # of each run, hosts that the same task refuses: the first refusal ends the run
        {
            "a": Bad(
                "a: is in neither kube_control_plane nor kube_node, so nothing would be done", ("others",)
            )
        },
        {
            "a": Bad(
                "a: is in pool_t4, pool_v100, gpuform_pool says t4; put it into exactly one group pool_NAME",
                ("kube_node", "pool_t4", "pool_v100"),
            ),
            "b": Bad(
                "b: is in pool_t4, gpuform_pool says v100; put it into exactly one group pool_NAME",
                ("kube_node", "pool_t4"),
                {"gpuform_pool": "v100"},
            ),
        },
        {
            "a": Bad(f"a: {UNDECLARED}", variables={"nvidia_driver_version": "580"}),
            "b": Bad(f"b: {UNDECLARED}", variables=NO_GPU),
        },
        {
            "a": Bad(
                "Two hosts of the inventory share an address and a port: 192.0.2.1:22 192.0.2.1:22; give"
            ),
            "b": Bad("the run stopped before this host was done"),
        },
        {"a": Bad("gpuform_environment", variables={"gpuform_environment": None})},
    ],
    ids=["groups", "pools", "gpus", "addresses", "specs"],
)
def test_an_invalid_inventory_is_refused_with_fact_and_remedy(hosts: Mapping[str, Bad]) -> None:
    given = {host: {**GOOD, **bad.variables} for host, bad in hosts.items()}
    groups = {group: [host for host, bad in hosts.items() if group in bad.groups] for group in ALL}
    inventory = {
        "_meta": {
            "hostvars": {
                host: {key: value for key, value in variables.items() if value is not None}
                for host, variables in given.items()
            }
        },
        "all": {"children": [group for group, members in groups.items() if members]},
        **{group: {"hosts": members} for group, members in groups.items() if members},
    }
    done = run("site.yml", inventory)
    assert not done.ok
    for host, bad in hosts.items():
        assert bad.message in done.hosts[host].message
    assert not any(result.unreachable for result in done.hosts.values())
