"""The driver's init container: operands are evicted before a driver change."""

from __future__ import annotations

from typing import Any

import pytest

from lab.simulator import driver_manager, keys, operands
from lab.simulator.actions import Annotate, Delete, NodeMeta

pytestmark = pytest.mark.unit

ON = {f"{keys.DEPLOY}{name}": "true" for name in driver_manager.CLIENTS}
OFF = dict.fromkeys(ON, driver_manager.PAUSED)
OLD = {keys.DRIVER_LABEL: "580.126.09"}


def coming(make_pod: Any, **fields: Any) -> Any:
    return make_pod("driver-2", "driver", start="waits", phase="Pending", ready=False, **fields)


def test_who_uses_the_old_driver_is_sent_away_before_another_is_loaded(
    make_world: Any, make_pod: Any
) -> None:
    busy = ("toolkit", "device-plugin")
    world = make_world(labels={**OLD, **ON}, operands=busy, pods=(coming(make_pod),))
    assert [a for a in operands.act(world) if isinstance(a, NodeMeta)] == [NodeMeta("driver-manager", OFF)]
    world = make_world(labels={**OLD, **OFF}, operands=busy, pods=(coming(make_pod),))
    assert [a for a in operands.act(world) if isinstance(a, NodeMeta | Annotate)] == []
    job = make_pod("job", "cuda-validator", phase="Succeeded", start="")
    driver = coming(make_pod)
    world = make_world(labels={**OLD, **OFF}, operands=(), pods=(driver, job))
    assert operands.act(world) == [
        Delete(job),
        NodeMeta("driver-manager", ON),
        Annotate(driver, {keys.START: "granted"}, "starts"),
    ]


@pytest.mark.parametrize("loaded", [{}, {keys.DRIVER_LABEL: "595.91.07"}])
def test_a_first_driver_and_the_same_again_send_nobody_away(
    make_world: Any, make_pod: Any, loaded: dict[str, str]
) -> None:
    driver = coming(make_pod)
    world = make_world(labels={**loaded, **ON}, operands=("toolkit",), pods=(driver,))
    assert Annotate(driver, {keys.START: "granted"}, "starts") in operands.act(world)
