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
from gpuform.stack.preview.effect import Effect, Effects, PreviewRules, Rule, Weight, after, before, differs
from gpuform.stack.preview.snapshot import Snapshot


def _driver_changes(step: Step, snapshot: Snapshot) -> Effects:
    """Hosts with a changed driver; the inventory is JSON text, with every host's variables in ``_meta``."""
    old, new = (_driver_versions(side(step, "inventory")) for side in (before, after))
    for host in sorted(old.keys() & new.keys()):
        if old[host] != new[host]:
            pods = tuple(pod for pod in snapshot.pods if pod.node == host)
            text = f"driver {old[host]} to {new[host]}: drained, rebooted and checked, one host after another"
            yield Effect(Weight.EVICTION, f"host {host}", text, (host,), pods)
    if old == new and differs(step, "inventory", "content"):
        text = "Ansible runs again; `gpuform hosts check` shows what it would change"
        yield Effect(Weight.NOTICE, "hosts", text)


def _driver_versions(inventory: Any) -> dict[str, str]:
    try:
        hosts = json.loads(str(inventory))["_meta"]["hostvars"]
    except (ValueError, KeyError, TypeError):
        return {}
    return {
        name: str(variables.get("nvidia_driver_version", ""))
        for name, variables in hosts.items()
        if variables.get("nvidia_driver_source") != "host"
    }


class HostsPreview(PreviewRules):
    """Effects of changes to own hosts on pods: a changed driver."""

    effects: ClassVar[Mapping[str, Rule]] = {"gpuform:hosts:HostConfiguration": _driver_changes}


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
