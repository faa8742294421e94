"""Effects of changes to own hosts on pods: a changed driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from gpuform.engine import Step
from gpuform.stack.preview.effect import Effect, Found, PreviewRules, Rule, Weight, after, before, changed
from gpuform.stack.preview.world import World


def _hosts(step: Step, world: World) -> Found:
    """Hosts with a changed driver; the inventory is JSON text, with every host's variables in ``_meta``."""
    had, has = (_drivers(side(step, "inventory")) for side in (before, after))
    for host in sorted(had.keys() & has.keys()):
        if had[host] != has[host]:
            pods = tuple(pod for pod in world.pods if pod.node == host)
            how = f"driver {had[host]} to {has[host]}: drained, rebooted and checked, one host after another"
            yield Effect(Weight.EVICTION, f"host {host}", how, (host,), pods)
    if had == has and changed(step, "inventory", "content"):
        yield Effect(
            Weight.NOTICE, "hosts", "Ansible runs again; `gpuform hosts check` shows what it would change"
        )


def _drivers(inventory: Any) -> dict[str, str]:
    try:
        hosts = json.loads(str(inventory))["_meta"]["hostvars"]
    except (ValueError, KeyError, TypeError):
        return {}
    return {name: str(one.get("nvidia_driver_version", "")) for name, one in hosts.items()}


class HostsPreview(PreviewRules):
    """Own hosts, as Ansible configures them."""

    effects: ClassVar[Mapping[str, Rule]] = {"gpuform:hosts:HostConfiguration": _hosts}
