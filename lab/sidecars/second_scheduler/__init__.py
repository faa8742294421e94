"""The second scheduler of the embedded control plane: a real kube-scheduler process."""
