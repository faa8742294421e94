"""Monitoring of the embedded control plane, with real Prometheus and kube-state-metrics processes.

Pods run no code here. This process lives as long as the control plane. As prometheus-operator does, it reads
the ``Prometheus`` that the stack has declared with its monitors and rules. It runs Prometheus and
kube-state-metrics with the permissions of their own service accounts, and neither while no ``Prometheus`` is
declared. Standard library and yaml alone.
"""
