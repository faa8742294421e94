"""Which pod requests which GPU and uses it: the cluster's objects combined with Prometheus' values."""
