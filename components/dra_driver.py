"""The Helm release of NVIDIA's DRA driver."""

from __future__ import annotations

import pulumi

from components.args import ReleaseArgs
from components.chart import installed

TIMEOUT_S = 300


class DraDriver(pulumi.ComponentResource):
    """A DaemonSet on nodes with GPUs by claim, and device classes; installs without such a node, too."""

    def __init__(self, name: str, args: ReleaseArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:DraDriver", name, None, opts)
        installed(
            f"{name}-release",
            args.release,
            TIMEOUT_S,
            pulumi.ResourceOptions(parent=self),
            skip_crds=True,  # compute domains are off, and the operator's chart has their CRDs, too
        )
        self.register_outputs({})
