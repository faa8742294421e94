"""Scaffold of a new AWS stack: its file, and the commands that create the storage for its state."""

from gpuform.stack.scaffold.bucket import Place, script
from gpuform.stack.scaffold.stack_file import example, region_of, stack_file

__all__ = ["Place", "example", "region_of", "script", "stack_file"]
