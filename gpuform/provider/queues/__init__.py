"""The resource type of the provider ``gpuform`` for queues."""
