"""Resource types of the provider ``gpuform`` for what happens to nodes that are there already."""
