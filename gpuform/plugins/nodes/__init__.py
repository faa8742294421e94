"""The provider ``gpuform``: resource types for what happens to nodes that are there already."""
