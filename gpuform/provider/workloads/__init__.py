"""Resource types of the provider ``gpuform`` for workload updates that Kubernetes does not offer."""
