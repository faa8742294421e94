"""Resource types of the provider ``gpuform`` that change existing nodes."""
