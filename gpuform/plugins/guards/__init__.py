"""The resource type of the provider ``gpuform`` that stands before what must not be replaced unasked."""
