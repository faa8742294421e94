"""What was changed by hand: what the engine finds when it reads everything again, and what nodes say."""

from gpuform.drift.finding import Drift, Finding
from gpuform.drift.run import look

__all__ = ["Drift", "Finding", "look"]
