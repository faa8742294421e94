"""IAM policies of the roles that preview and update a stack on AWS, for what its program creates.

``accounts.yaml`` has the rights by resource type. Writing is limited to the stack's names, or to resources
that carry, or are created with, the tag that the provider puts on everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from infra.model.aws.network import OwnNetwork
from infra.model.aws.values import partition_of
from infra.model.base import labels
from infra.model.environment import Environment
from infra.plan import eks, iam, templates
from infra.plan.node_groups import cluster_of

MAX_CHARACTERS = 6144
"""Of a managed policy, without white space (IAM user guide, "IAM and AWS STS quotas")."""

_FILE = templates.read(Path(__file__).with_suffix(".yaml"))
_DOCUMENTS = ("network", "cluster", "roles", "karpenter")
Rows = Mapping[str, Mapping[str, Any]]


def policies(env: Environment) -> dict[str, iam.Policy]:
    """Documents by the end of their name; only called on AWS.

    ``preview`` is for `preview`, `drift` and `doctor`; `up`, `destroy` and `recover` need all of them.
    """
    filled = _filled(env)
    common, rows = filled["always"], {name: filled[name] for name in _DOCUMENTS}
    reading = {
        *common["read"],
        *(action for types in rows.values() for row in types.values() for action in row["read"]),
    }
    documents = {"preview": [_statement(sorted(reading), "*", None), *_merged(common["images"])]}
    for name, types in rows.items():
        first = common["write"] if name == "cluster" else []
        writes = [*first, *(write for row in types.values() for write in row["write"])]
        if writes:
            documents[f"up-{name}"] = list(_merged(writes))
    return {name: {"Version": iam.VERSION, "Statement": entries} for name, entries in documents.items()}


def resource_types(env: Environment) -> dict[str, Rows]:
    """The rows of the types that the stack's program registers, by document and type."""
    filled = _filled(env)
    return {name: filled[name] for name in _DOCUMENTS}


def _filled(env: Environment) -> dict[str, Any]:
    """The file for this stack: without the types that its program does not register."""
    cluster, karpenter = cluster_of(env), env.has_karpenter
    partition = partition_of(cluster.region)
    aws_policies = ["AmazonEKSClusterPolicy", *(identity.policy for identity in eks.POD_IDENTITY.values())]
    own = [f"arn:{partition}:iam::*:policy/karpenter-{name}-*" for name in iam.controller_policies()]
    attached = [f"arn:{partition}:iam::aws:policy/{name}" for name in aws_policies]
    values = {
        "partition": partition,
        "region": cluster.region,
        "name": env.name,
        "tag": labels.ENVIRONMENT,
        "queue": eks.interruption_queue(env),
        "attached": [*attached, *iam.node_role_policies(partition), *(own if karpenter else [])],
        "own_network": isinstance(cluster.network, OwnNetwork),
        "karpenter": karpenter,
        "admins": bool(cluster.admins),
        "entries": bool(cluster.admins) or karpenter,
        "placement": any(pool.aws_settings.placement_group for pool in env.pools),
    }
    parts = {name: part for name, part in _FILE.items() if name != "let"}
    return dict(templates.fill(parts, templates.with_let(_FILE["let"], values)))


def _merged(writes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One statement for all actions with the same resources and condition."""
    found: dict[str, tuple[set[str], dict[str, Any]]] = {}
    for write in writes:
        actions, _ = found.setdefault(json.dumps([write["to"], write.get("if")]), (set(), write))
        actions.update([write["do"]] if isinstance(write["do"], str) else write["do"])
    for actions, write in found.values():
        yield _statement(sorted(actions), write["to"], write.get("if"))


def _statement(actions: list[str], resources: Any, condition: Any) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Action": actions, "Resource": resources}
    return {**statement, "Condition": condition} if condition else statement
