"""The embedded control plane: real Kubernetes API and scheduler on this machine, nodes simulated by kwok."""

from gpuform.embedded.plane import ControlPlane
from gpuform.embedded.status import Member, Status

__all__ = ["ControlPlane", "Member", "Status"]
