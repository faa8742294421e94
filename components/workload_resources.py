"""The resource type of the ``gpuform`` provider for blue/green Deployments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi


class BlueGreen(pulumi.CustomResource):
    """A Service and the two Deployments behind it, one of them live.

    A changed template goes to the colour that is not live: it scales up as the live one scales down, the
    Service switches once, and both together never have more pods than replicas. If new pods do not become
    ready, everything is rolled back, and the update fails with their messages. Destroying the resource
    deletes all three.

    ``kubeconfig`` is a path or the contents; ``deployment`` and ``service`` are manifests without a colour,
    of one name and namespace; ``step`` pods are replaced at a time, the Service switches at ``switch_at``
    ready new ones, and ``deadline_seconds`` without progress are a failure.
    """

    colour: pulumi.Output[str]

    def __init__(
        self,
        resource_name: str,
        *,
        kubeconfig: pulumi.Input[str],
        deployment: Mapping[str, Any],
        service: Mapping[str, Any],
        step: int,
        switch_at: int,
        deadline_seconds: int,
        context: pulumi.Input[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        props = {
            "kubeconfig": kubeconfig,
            "context": context,
            "deployment": deployment,
            "service": service,
            "step": step,
            "switchAt": switch_at,
            "deadlineSeconds": deadline_seconds,
            "colour": None,
        }
        super().__init__("gpuform:workloads:BlueGreen", resource_name, props, opts)
