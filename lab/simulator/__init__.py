"""Stand-ins for NVIDIA's operands on simulated nodes.

They read only what is in the cluster: nodes, pods, ConfigMaps. Each module plays one operand and is pure: it
derives its actions from a ``World``. Nothing is imported from ``infra``, or it would confirm itself.
"""
