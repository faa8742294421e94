"""Who asks for which GPU, and who uses it: the cluster's objects and Prometheus' numbers brought together."""
