"""The resource type of the ``gpuform`` provider that prevents the loss of data and of running pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from infra.model.losses import GUARD


class LossGuard(pulumi.CustomResource):
    """Fails, in a preview and in an update, if something would be lost that is not acknowledged by its name.

    It creates nothing and is never shown as a change. If it fails, resources after it are not touched.

    ``environment`` is the cluster's name; ``fixed`` has by path what only another cluster can have; ``lost``
    says what goes with the cluster; ``acknowledged`` has the names that the stack file acknowledges. With
    ``pools`` (each with what only a replacement of its nodes changes), ``namespaces`` and ``queues`` (names)
    it guards what is in the cluster instead, which it reads through ``kubeconfig``.
    """

    def __init__(
        self,
        resource_name: str,
        *,
        environment: str,
        fixed: Mapping[str, Any],
        lost: Sequence[str],
        acknowledged: Sequence[str],
        kubeconfig: pulumi.Input[str] | None = None,
        context: str | None = None,
        pools: Mapping[str, Mapping[str, Any]] | None = None,
        namespaces: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        props = {
            "environment": environment,
            "fixed": fixed,
            "lost": lost,
            "acknowledged": acknowledged,
            "kubeconfig": kubeconfig,
            "context": context,
            "pools": pools,
            "namespaces": namespaces,
            "queues": queues,
        }
        super().__init__(GUARD, resource_name, props, opts)
