"""The resource type of the provider ``gpuform`` that prepares own hosts."""
