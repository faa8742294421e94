"""The second scheduler of the embedded control plane: run for real, as its pods would run it elsewhere.

Pods run no code here. This process is there while the control plane is, looks for the configuration that the
stack has put into the cluster, and runs kube-scheduler with it, with the rights of its own account and no
others. Standard library and yaml alone: it is always there, and mostly has nothing to do.
"""
