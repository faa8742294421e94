"""Destroys that end: in an order in which whoever must see to something's end is still alive."""

from gpuform.destroy.grounds import Options
from gpuform.destroy.plan import Plan
from gpuform.destroy.run import Destroy, Outcome
from gpuform.destroy.site import Site

__all__ = ["Destroy", "Options", "Outcome", "Plan", "Site"]
