"""The resource type of the ``gpuform`` provider that prepares own hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi


class HostConfiguration(pulumi.CustomResource):
    """One playbook on every host of an inventory; fails unless all hosts succeed, but keeps partial results.

    A preview runs the playbook in check mode on reachable hosts. Destroying the resource removes nothing from
    the hosts.

    ``inventory`` is JSON as ``ansible-inventory --list`` prints it; ``content`` a hash of it and of the
    playbook's files, for the diff; ``connection`` may have ``forks``, hosts at a time.
    """

    hosts: pulumi.Output[Mapping[str, Any]]
    """By host: ``{ok, changed, failed, unreachable, message}``."""

    def __init__(
        self,
        resource_name: str,
        *,
        inventory: pulumi.Input[str],
        content: pulumi.Input[str],
        playbook: pulumi.Input[str] = "site.yml",
        connection: pulumi.Input[Mapping[str, Any]] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        props = {
            "inventory": inventory,
            "playbook": playbook,
            "content": content,
            "connection": connection,
            "hosts": None,
        }
        super().__init__("gpuform:hosts:HostConfiguration", resource_name, props, opts)
