"""The tools that the main job runs, at pinned versions: found on PATH, fetched or built."""

from lab.toolchain.chain import Toolchain
from lab.toolchain.found import Found
from lab.toolchain.progress import Progress, Reporter

__all__ = ["Found", "Progress", "Reporter", "Toolchain"]
