"""The tools that the main job runs, at pinned versions: found on PATH, fetched or built."""

from lab.toolchain.chain import Toolchain
from lab.toolchain.progress import Progress, Reporter
from lab.toolchain.tool import Found

__all__ = ["Found", "Progress", "Reporter", "Toolchain"]
