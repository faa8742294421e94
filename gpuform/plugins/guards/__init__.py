"""The resource type of the provider ``gpuform`` that refuses replacements that are not allowed."""
