"""The tools that the main job runs, at pinned versions: found on PATH, fetched or built."""

from lab.toolchain.chain import Toolchain
from lab.toolchain.progress import Progress, Reporter
from lab.toolchain.tool import ToolLocation

__all__ = ["Progress", "Reporter", "ToolLocation", "Toolchain"]
