"""What a new stack on AWS begins with: its file, and the commands that make what its state needs."""

from gpuform.scaffold.bucket import Place, script
from gpuform.scaffold.stack_file import example, region_of, stack_file

__all__ = ["Place", "example", "region_of", "script", "stack_file"]
