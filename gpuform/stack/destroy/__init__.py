"""Destroys stacks in an order that keeps each controller alive until its resources are deleted."""

from gpuform.stack.destroy.grounds import Options
from gpuform.stack.destroy.plan import Plan
from gpuform.stack.destroy.run import Destroy, Outcome
from gpuform.stack.destroy.site import Site

__all__ = ["Destroy", "Options", "Outcome", "Plan", "Site"]
