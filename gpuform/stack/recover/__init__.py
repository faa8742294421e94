"""Finds, shows and resolves what an interrupted update leaves: locks, pending operations, releases."""

from gpuform.stack.recover.apply import carry_out
from gpuform.stack.recover.find import Stack, Told, find
from gpuform.stack.recover.given_up import run_to_the_end
from gpuform.stack.recover.onward import go_on
from gpuform.stack.recover.plan import FOR_YOU, Lock, Plan, Release, Step

__all__ = [
    "FOR_YOU",
    "Lock",
    "Plan",
    "Release",
    "Stack",
    "Step",
    "Told",
    "carry_out",
    "find",
    "go_on",
    "run_to_the_end",
]
