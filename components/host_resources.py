"""The resource type of the ``gpuform`` provider that prepares own hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi


class HostConfiguration(pulumi.CustomResource):
    """One playbook on every host of an inventory; it fails unless every host is done, and keeps what is.

    A preview runs the playbook in check mode where hosts can be reached. Destroying the resource takes
    nothing off the hosts.
    """

    hosts: pulumi.Output[Mapping[str, Any]]

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
        """``inventory`` is JSON as ``ansible-inventory --list`` prints it; ``content`` a hash of it and of
        what the playbook is made of, for the diff; ``connection`` may have ``forks``, hosts at a time.
        ``hosts`` then has ``{ok, changed, failed, unreachable, message}`` for each.
        """
        props = {
            "inventory": inventory,
            "playbook": playbook,
            "content": content,
            "connection": connection,
            "hosts": None,
        }
        super().__init__("gpuform:hosts:HostConfiguration", resource_name, props, opts)
