"""The embedded control plane: a real Kubernetes API and scheduler on this machine, nodes played by kwok."""

from gpuform.embedded.plane import ControlPlane
from gpuform.embedded.status import Member, Status

__all__ = ["ControlPlane", "Member", "Status"]
