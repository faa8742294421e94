"""The hosts of inventories and pools, and conversion of a script's output to an inventory file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import InputError
from infra.inventory import mark_unsafe


@dataclass(frozen=True)
class PoolHosts:
    """Labels, taints and sharing for the nodes of one pool's hosts."""

    pool: str
    hosts: Sequence[str]
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, Any]]
    startup: Mapping[str, Any] | None = None
    sharing: Mapping[str, Any] | None = None


def hosts_of(inventory: Mapping[str, Any], group: str = "all") -> list[str]:
    """The hosts of a group and of its child groups, sorted by name; empty for an unknown group."""
    if group == "all":
        groups: Iterable[Any] = [item for key, item in inventory.items() if key != "_meta"]
        names = set((inventory.get("_meta") or {}).get("hostvars") or {})
    else:
        groups, names = [inventory.get(group) or {}], set()
    for item in groups:
        hosts = item if isinstance(item, list) else item.get("hosts") or []
        names |= set(hosts)
        for child in [] if isinstance(item, list) else item.get("children") or []:
            names |= set(hosts_of(inventory, child)) if child != group else set()
    return sorted(names)


def requested_hosts(inventory: Mapping[str, Any], limit: Sequence[str]) -> list[str]:
    """The hosts that a run with this limit includes; InputError for a name that is not a host or group."""
    all_hosts = hosts_of(inventory)
    if not limit:
        return all_hosts
    requested: set[str] = set()
    for name in limit:
        members = _members(inventory, name, all_hosts)
        if not members:
            groups = sorted(key for key in inventory if key not in ("_meta", "all"))
            raise InputError(
                "limit",
                f"{name} is neither a host nor a group with hosts",
                f"the hosts are {', '.join(all_hosts) or 'none'}; the groups {', '.join(groups) or 'none'}",
            )
        requested |= set(members)
    return sorted(requested)


def plays_of(playbook: Any, inventory: Mapping[str, Any]) -> list[set[str]]:
    """The hosts of each play of a playbook, in order; empty if the playbook cannot be analysed.

    A pattern that is more than names joined by ``:`` or ``,`` counts as every host.
    """
    if not isinstance(playbook, list) or any("hosts" not in play for play in playbook):
        return []
    all_hosts, plays = hosts_of(inventory), []
    for play in playbook:
        pattern = play["hosts"]
        names = pattern if isinstance(pattern, list) else str(pattern).replace(",", ":").split(":")
        is_plain = all(re.sub("[-_.]", "", str(name)).isalnum() for name in names)
        members = {host for name in names for host in _members(inventory, str(name), all_hosts)}
        plays.append(members if is_plain else set(all_hosts))
    return plays


def _members(inventory: Mapping[str, Any], name: str, all_hosts: Sequence[str]) -> Sequence[str]:
    return [name] if name in all_hosts else hosts_of(inventory, name)


def to_yaml_inventory(inventory: Mapping[str, Any]) -> dict[str, Any]:
    """The inventory in the form of Ansible's YAML files, a superset of JSON; no variable is a template."""
    hostvars = (inventory.get("_meta") or {}).get("hostvars") or {}
    groups: dict[str, Any] = {}
    for name, item in inventory.items():
        if name == "_meta":
            continue
        body = {"hosts": item} if isinstance(item, list) else item
        groups[name] = {
            "hosts": {host: None for host in body.get("hosts") or []},
            "children": {child: None for child in body.get("children") or []},
            "vars": mark_unsafe(body.get("vars") or {}),
        }
    all_group = groups.pop("all", {"children": {}, "vars": {}})
    return {
        "all": {
            "hosts": {host: mark_unsafe(hostvars.get(host) or {}) for host in hosts_of(inventory)},
            "children": {**{name: None for name in all_group["children"] if name not in groups}, **groups},
            "vars": all_group["vars"],
        }
    }
