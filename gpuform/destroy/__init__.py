"""Destroys stacks in an order that keeps each controller alive until its resources are deleted."""

from gpuform.destroy.grounds import Options
from gpuform.destroy.plan import Plan
from gpuform.destroy.run import Destroy, Outcome
from gpuform.destroy.site import Site

__all__ = ["Destroy", "Options", "Outcome", "Plan", "Site"]
