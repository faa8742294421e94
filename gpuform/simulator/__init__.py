"""Stand-ins for NVIDIA's operands on simulated nodes.

It knows only what lies in the cluster: nodes, pods, ConfigMaps. Each module plays one operand and is pure:
what it wants to change follows from a ``World``. It imports nothing of ``infra``, or it would confirm itself.
"""
