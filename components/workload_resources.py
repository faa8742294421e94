"""The resource type of the ``gpuform`` provider for a Deployment that changes its colour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi


class BlueGreen(pulumi.CustomResource):
    """A Service and the two Deployments behind it, one of them live.

    A changed template goes to the colour that is not live: it grows as the live one shrinks, the Service
    switches once, and both together never have more pods than replicas. New pods that do not get ready make
    all of it go back, and the update fails with what they say. Destroying the resource takes all three away.
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
        """``kubeconfig`` is a path or the contents; ``deployment`` and ``service`` are manifests without a
        colour, of one name and namespace; ``step`` pods are replaced at a time, the Service switches at
        ``switch_at`` ready new ones, and ``deadline_seconds`` without progress are a failure.
        """
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
