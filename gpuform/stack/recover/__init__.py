"""Finds, shows and resolves what an interrupted update leaves: locks, pending operations, releases."""

from gpuform.stack.recover.apply import carry_out
from gpuform.stack.recover.auto_recover import resume, retry_after_cloud
from gpuform.stack.recover.find import Stack, UserDecisions, find
from gpuform.stack.recover.plan import MANUAL, Lock, Plan, Recovery, Release, Step

__all__ = [
    "MANUAL",
    "Lock",
    "Plan",
    "Recovery",
    "Release",
    "Stack",
    "Step",
    "UserDecisions",
    "carry_out",
    "find",
    "resume",
    "retry_after_cloud",
]
