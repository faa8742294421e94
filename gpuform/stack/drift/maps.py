"""Compares the operands' configuration with the plan, key by key.

The engine sees only the keys that it has written, but the operands also read keys that others added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuform.stack.drift.finding import Finding, at
from infra.model.environment import Environment
from infra.plan.sharing import device_plugin_config_map, mig_parted_config_map

ConfigMap = Mapping[str, Any]


def planned(env: Environment) -> tuple[ConfigMap, ...]:
    found = (device_plugin_config_map(env), mig_parted_config_map(env))
    return tuple(one for one in found if one is not None)


def check(env: Environment, live: Iterable[ConfigMap]) -> Iterator[Finding]:
    """Differences, without the values, which span lines; the key says where to look."""
    there = {_place(one): one.get("data") or {} for one in live}
    for wanted in planned(env):
        resource, data = f"ConfigMap {_place(wanted)}", wanted["data"]
        has = there.get(_place(wanted))
        if has is None:
            yield Finding(resource, "", "missing", "cluster", "a ConfigMap", "none")
            continue
        for key in sorted({*data, *has}):
            if key not in has:
                yield Finding(resource, at("data", key), "missing", "cluster")
            elif key not in data:
                yield Finding(resource, at("data", key), "added", "cluster")
            elif data[key] != has[key]:
                yield Finding(resource, at("data", key), "changed", "cluster")


def _place(one: ConfigMap) -> str:
    return f"{one['metadata']['namespace']}/{one['metadata']['name']}"
