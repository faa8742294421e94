"""A small cluster-autoscaler, played: what the real one would do with Magnum's node groups.

It grows a group for pods that no node takes and a node of that group would, and takes away nodes that nobody
needs. Its rules are those of cluster-autoscaler's core and of its Magnum provider (kubernetes/autoscaler,
cluster-autoscaler/cloudprovider/magnum, of 2026-08); what it leaves out is in ``CANNOT_SHOW``.
"""

from gpuform.rehearse.autoscaler.group import Group, groups
from gpuform.rehearse.autoscaler.keeper import Autoscaler, autoscaler

CANNOT_SHOW = (
    "how long Magnum takes to make a node, and quotas: a node joins here at once",
    (
        "how many nodes the real cluster-autoscaler orders meanwhile: pending pods do not fit on a node that "
        "has joined and offers no GPU yet, so it may order more, up to the group's most"
    ),
    "pods' affinity to other pods and spread, which the played cluster-autoscaler does not look at",
)
"""What this way of buying cannot show."""

__all__ = ["CANNOT_SHOW", "Autoscaler", "Group", "autoscaler", "groups"]
