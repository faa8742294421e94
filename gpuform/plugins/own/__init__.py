"""The provider ``gpuform``: the project's own resource types, for nodes and for hosts."""
