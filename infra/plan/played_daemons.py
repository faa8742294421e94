"""The DaemonSets of a rehearsed EKS cluster that no simulated chart brings: the add-ons'.

Karpenter takes what DaemonSets request off each node that it may buy, so a rehearsal needs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infra.model import labels, node_room
from infra.model.environment import Environment
from infra.plan import add_ons

Manifest = dict[str, Any]


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """The DaemonSets, with the requests and tolerations of the real ones."""
    found = [_daemon_set(one, [{"operator": "Exists"}]) for one in node_room.EKS]
    agent = add_ons.settings(env).get(add_ons.MONITORING)
    if agent:
        nvidia = [one.name for one in env.catalogue.machines.values() if one.seller == "ec2" and one.gpus]
        tolerations = agent["dcgmAgent"]["tolerations"]
        found.append(_daemon_set(node_room.DCGM_SERVER, tolerations, nvidia))
    return tuple(found)


def _daemon_set(
    daemon: node_room.Daemon, tolerations: list[Mapping[str, str]], types: Sequence[str] = ()
) -> Manifest:
    """A DaemonSet on all nodes, or on those of the instance ``types``."""
    name, selector = daemon.name, {labels.APP_NAME: daemon.name}
    asked = {"cpu": f"{daemon.cpu}m", "memory": f"{daemon.memory}Mi"}
    container = {"name": name, "image": f"simulated.gpuform.io/{name}:0", "resources": {"requests": asked}}
    pod: Manifest = {
        "containers": [container],
        "priorityClassName": "system-node-critical",
        "tolerations": tolerations,
    }
    if types:
        only = {"key": labels.INSTANCE_TYPE, "operator": "In", "values": types}
        term = {"matchExpressions": [only]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        pod["affinity"] = {"nodeAffinity": required}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system", "labels": selector},
        "spec": {
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": selector}, "spec": pod},
        },
    }
