"""Changes made by hand: what the engine's refresh finds, and what the live nodes show."""

from gpuform.stack.drift.finding import Drift, Finding
from gpuform.stack.drift.run import look

__all__ = ["Drift", "Finding", "look"]
