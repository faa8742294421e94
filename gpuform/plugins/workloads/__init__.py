"""Resource types of the provider ``gpuform`` for workloads that change in a way Kubernetes does not offer."""
