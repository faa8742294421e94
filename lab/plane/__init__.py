"""The embedded control plane: real Kubernetes API and scheduler on this machine, nodes simulated by kwok."""

from lab.plane.plane import ControlPlane, Member, Status

__all__ = ["ControlPlane", "Member", "Status"]
