"""The provider ``gpuform``: the project's own resource types, for nodes, workloads and hosts, and guards."""
