"""The resource type of the ``gpuform`` provider that keeps a change from replacing a cluster unasked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi


class ReplacementGuard(pulumi.CustomResource):
    """Fails, in a preview and in an update, where what it guards would be replaced and nobody allowed it.

    It makes nothing and is never shown as a change. What comes after it is not touched when it fails.
    """

    def __init__(
        self,
        resource_name: str,
        *,
        what: str,
        at: str,
        fixed: Mapping[str, Any],
        template: Mapping[str, Any] | None,
        allow: str,
        allow_replace: bool,
        lost: Sequence[str],
        cloud: str | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """``fixed`` has by its path below ``at`` what only a replacement of ``what`` changes; ``template``
        the same of its template, None where another template is no replacement; ``allow`` is the path of the
        field with ``allow_replace``; ``lost`` says what a replacement takes along; ``cloud`` is the entry of
        clouds.yaml, empty for the OS_ variables, that implies ``cluster.region`` where ``fixed`` has none.
        """
        props = {
            "what": what,
            "at": at,
            "fixed": fixed,
            "template": template,
            "allow": allow,
            "allowReplace": allow_replace,
            "lost": lost,
            "cloud": cloud,
        }
        super().__init__("gpuform:openstack:ReplacementGuard", resource_name, props, opts)
