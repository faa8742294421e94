"""Runs of the real Pulumi engine for this checkout, isolated from the user's own Pulumi setup."""

from gpuform.engine.checkpoint import forget_stacks, require_forgettable
from gpuform.engine.environment import engine_env, export_lines
from gpuform.engine.events import Event, Message, Step, Violation
from gpuform.engine.result import EngineFailure, Result
from gpuform.engine.run import Engine
from gpuform.engine.standins import Plugin, plugins

__all__ = [
    "Engine",
    "EngineFailure",
    "Event",
    "Message",
    "Plugin",
    "Result",
    "Step",
    "Violation",
    "engine_env",
    "export_lines",
    "forget_stacks",
    "plugins",
    "require_forgettable",
]
