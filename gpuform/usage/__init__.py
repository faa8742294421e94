"""What a cluster has and who uses it."""
