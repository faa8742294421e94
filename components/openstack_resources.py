"""The resource type of the ``gpuform`` provider that prevents unconfirmed replacements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi


class ReplacementGuard(pulumi.CustomResource):
    """Fails, in a preview and in an update, if what it guards would be replaced without permission.

    It creates nothing and is never shown as a change. If it fails, resources after it are not touched.

    ``fixed`` has by its path below ``at`` what only a replacement of ``what`` changes; ``template`` the same
    of its template, None if another template is not a replacement; ``allow`` is the path of the field with
    ``allow_replace``; ``acknowledged`` has names that the stack file acknowledges instead; ``lost`` says what
    a replacement deletes; ``cloud`` is the entry of clouds.yaml (empty: the OS_ variables) that implies
    ``cluster.region`` if ``fixed`` does not have it.
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
        acknowledged: Sequence[str] = (),
        cloud: str | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        props = {
            "what": what,
            "at": at,
            "fixed": fixed,
            "template": template,
            "allow": allow,
            "allowReplace": allow_replace,
            "lost": lost,
            "acknowledged": acknowledged or None,
            "cloud": cloud,
        }
        super().__init__("gpuform:openstack:ReplacementGuard", resource_name, props, opts)
