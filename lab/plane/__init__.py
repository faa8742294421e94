"""The embedded control plane: real Kubernetes API and scheduler on this machine, nodes simulated by kwok."""

from lab.plane.plane import ControlPlane, Member, Status
from lab.plane.processes import stacks_with_planes

__all__ = ["ControlPlane", "Member", "Status", "stacks_with_planes"]
