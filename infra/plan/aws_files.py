"""What an AWS environment comes to beside the platform, as documents for people and for review."""

from __future__ import annotations

from typing import Any

from infra.model.environment import Environment
from infra.plan import eks, iam, karpenter, node_class, overlays

Documents = list[dict[str, Any]]


def files(env: Environment) -> dict[str, Documents]:
    """Documents by file name; none for another kind of cluster, no Karpenter without an elastic pool."""
    if env.cluster.kind != "aws":
        return {}
    found = {"add-ons.yaml": [dict(eks.add_ons(env))]}
    elastic = [pool for pool in env.pools if pool.elastic]
    if elastic:
        releases = [eks.karpenter_crd_release(env), eks.karpenter_release(env)]
        charts = [{key: value for key, value in vars(one).items() if value is not None} for one in releases]
        objects: Documents = []
        for pool in elastic:
            objects.append(node_class.ec2_node_class(env, pool, node_class.node_role(env), env.name))
            objects += [*overlays.node_overlays(env, pool), *karpenter.node_pools(env, pool)]
        found["karpenter.yaml"] = [*charts, *objects]
        found["iam.yaml"] = _access()
    return found


def _access() -> Documents:
    """Karpenter's policies with the places that only AWS fills in, in braces."""
    policies = iam.controller_policies()
    return [
        *({"policy": name, "document": policy} for name, policy in sorted(policies.items())),
        {"policy": "interruption queue", "document": iam.queue_policy()},
        {"role": "nodes", "policies": list(iam.node_role_policies())},
    ]
