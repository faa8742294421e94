"""The monitoring of the embedded control plane: run for real, as prometheus-operator would run it elsewhere.

Pods run no code here. This process is there while the control plane is, reads the ``Prometheus`` that the
stack has declared with its monitors and rules, and runs Prometheus and kube-state-metrics with the rights of
their own accounts. While nobody has declared one, neither runs. Standard library and yaml alone.
"""
