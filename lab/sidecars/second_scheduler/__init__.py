"""The second scheduler of the embedded control plane, as a real kube-scheduler process.

Pods run no code here. This process lives as long as the control plane, looks for the configuration that the
stack has put into the cluster, and runs kube-scheduler with it, with the permissions of the scheduler's own
account and no others. Standard library and yaml alone: it always runs and is mostly idle.
"""
