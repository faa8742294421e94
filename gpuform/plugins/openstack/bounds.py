"""Bounds that the number of nodes of a group breaks: told with all three numbers, as Magnum does not.

Magnum keeps ``min_node_count <= node_count <= max_node_count`` and answers 409 to a change of bounds that
would break it (``_validate_node_count`` in magnum/api/controllers/v1/nodegroup.py).
"""

from __future__ import annotations

from gpuform.plugins.handler import PluginError


def outside(what: str, cluster: str, name: str, nodes: int, least: int, most: int) -> PluginError | None:
    """The error where ``nodes`` are not ``least`` to ``most`` (0 for no most); ``cluster`` is its id."""
    bounds = f"{least} to {most}" if most else f"at least {least}"
    has = f"{what}: has {nodes} node{'s' if nodes != 1 else ''}"
    if most and least > most:
        return PluginError(f"{what}: is asked for {bounds} nodes; make elastic.min at most elastic.max.nodes")
    if most and nodes > most:
        return PluginError(
            f"{has}, and {bounds} are asked for, but Magnum takes no maximum below what there is; scale down "
            f"first: let the autoscaler remove idle nodes, or drain {nodes - most} and run 'openstack coe "
            f"cluster resize --nodegroup {name} --nodes-to-remove SERVER {cluster} {most}', then the same "
            f"command again; or set elastic.max.nodes to {nodes} or more, or nodes: {most} "
            "in place of elastic"
        )
    if nodes < least:
        return PluginError(
            f"{has}, fewer than when it was looked at, and {bounds} are asked for, but "
            "Magnum takes no minimum above what there is; run the same command again, which first makes "
            f"them {least}; or set elastic.min to {nodes} or less, or nodes: {least} in place of elastic"
        )
    return None
