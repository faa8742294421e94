"""How a pool's GPUs change to another MIG mode: by a reset or a reboot.

An A100 or A30 needs a reset, later GPUs none [NVIDIA's MIG user guide, "Enable MIG Mode"]. A hypervisor may
refuse the reset of a GPU that it passes through; then the machine must reboot [NVML, nvmlDeviceSetMigMode;
NVIDIA/gpu-operator#1606]. NVIDIA's operator documentation sets ``WITH_REBOOT`` at cloud providers.

``WITH_REBOOT`` is one setting for all nodes of a release. The MIG manager tries the reset first, and reboots
the node if the change of the mode fails for any reason; a mode that is not there after that is ``failed``
[NVIDIA/mig-parted v0.15.0, pkg/mig/reconfigure/reconfigure.go, Run]. So a node that can be reset is reset
with it, too, and pools of both kinds may be in one environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.model.pool.pool import Pool

TIMEOUT_S = 1800
"""Default limit of a change with a reboot. The MIG manager waits up to 5 minutes for each of five kinds of
pods to end (reconfigure.go, waitForPodsToBeDeleted), before the node boots."""
_NO_RESET_SINCE = (9, 0)
"""Compute capability of Hopper."""


def can_reset(cluster: str, pool: Pool) -> bool:
    """Whether the pool's simulated nodes can reset their GPUs; never on AWS, even with ``reset: gpu``."""
    return cluster != "aws" and pool.resets_by == "gpu"


def rebooting_pools(pools: Sequence[Pool]) -> tuple[str, ...]:
    """Names of the pools for which the MIG manager must be allowed to reboot nodes."""
    return tuple(pool.name for pool in pools if pool.mig_capable and pool.resets_by == "reboot")


def warnings(pools: Sequence[Pool]) -> Iterator[str]:
    """Pools with ``reset: gpu`` if the reset may be refused, or if the nodes may reboot nevertheless."""
    rebooting = rebooting_pools(pools)
    for index, pool in enumerate(pools):
        if pool.reset != "gpu":
            continue
        if pool.default_reset == "reboot" and any(gpu.compute < _NO_RESET_SINCE for gpu in pool.gpus):
            fact = "a hypervisor may refuse to reset the GPUs of a virtual machine, and then the layout fails"
            yield f"pools[{index}].reset: {fact}; use reboot, unless its nodes are bare metal"
        if rebooting:
            fact = f"pool {rebooting[0]} allows the MIG manager to reboot nodes, a setting for all pools"
            yield f"pools[{index}].reset: {fact}; nodes of this pool reboot, too, if a reset fails"
