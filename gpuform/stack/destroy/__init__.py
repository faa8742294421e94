"""Destroys stacks in an order that keeps each controller alive until its resources are deleted."""

from gpuform.stack.destroy.plan import Plan
from gpuform.stack.destroy.run import Destroy, Outcome
from gpuform.stack.destroy.stack_teardown import StackTeardown
from gpuform.stack.destroy.teardown import Leftover, Options, Teardown

__all__ = ["Destroy", "Leftover", "Options", "Outcome", "Plan", "StackTeardown", "Teardown"]
