"""The resource types of the provider ``gpuform`` that refuse losses and replacements that are not allowed."""
