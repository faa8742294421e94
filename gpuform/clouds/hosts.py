"""Clusters of own hosts, which Ansible configures and checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gpuform.checkout.errors import InputError
from gpuform.clouds.cloud import Cloud
from gpuform.clouds.existing import ExistingTeardown
from gpuform.engine import Step
from gpuform.stack.drift.rules import DriftRules
from gpuform.stack.preflight import nothing_to_check
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
        how = "Ansible runs again; `gpuform hosts check` shows what it would change"
        yield Effect(Weight.NOTICE, "hosts", how)


def _drivers(inventory: Any) -> dict[str, str]:
    try:
        hosts = json.loads(str(inventory))["_meta"]["hostvars"]
    except (ValueError, KeyError, TypeError):
        return {}
    return {name: str(one.get("nvidia_driver_version", "")) for name, one in hosts.items()}


class HostsPreview(PreviewRules):
    """Effects of changes to own hosts on pods: a changed driver."""

    effects: ClassVar[Mapping[str, Rule]] = {"gpuform:hosts:HostConfiguration": _hosts}


class HostsDrift(DriftRules):
    """The engine does not manage own hosts; Ansible finds their changes."""

    def require_managed(self, stack: str) -> None:
        fact = "is on own hosts, which the engine does not manage"
        raise InputError(f"stack {stack}", fact, "use `gpuform hosts check`")


@dataclass
class HostsTeardown(ExistingTeardown):
    """As on an existing cluster, and the hosts are not changed."""

    def notes(self) -> tuple[str, ...]:
        return (
            "hosts: what was installed on them stays (driver, toolkit, settings): docs/reference/roles.md",
        )


HOSTS = Cloud(
    preflight=nothing_to_check(
        "own hosts are checked over ssh, by another command", "gpuform hosts check {stack}"
    ),
    teardown=HostsTeardown,
    preview=HostsPreview(),
    drift=HostsDrift(),
)
