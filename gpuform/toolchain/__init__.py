"""The tools that the main job runs, at pinned versions: found on PATH, fetched or built."""

from gpuform.toolchain.chain import Toolchain
from gpuform.toolchain.found import Found
from gpuform.toolchain.progress import Progress, Reporter

__all__ = ["Found", "Progress", "Reporter", "Toolchain"]
