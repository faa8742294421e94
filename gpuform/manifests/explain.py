"""What a manifest needs to run on a pool, as lines to copy."""

from __future__ import annotations

from typing import Any

from gpuform.checkout.errors import InputError
from infra.model.base import labels
from infra.model.base.fields import listing
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.plan import dra, pod_needs, sharing


def lines(env: Environment, name: str) -> str:
    """YAML of a pod spec with what the pool needs, and comments; InputError for an unknown pool."""
    pool = next((pool for pool in env.pools if pool.name == name), None)
    if pool is None:
        raise InputError(
            "--explain", f"no pool is named {name!r}", listing([pool.name for pool in env.pools], name)
        )
    offers = allocatable.max_resources(pool)
    resource = next(iter(offers), None)
    spec: dict[str, Any] = {"nodeSelector": {labels.POOL: name}}
    spec |= pod_needs.fields(env, [pool], bool(resource), pool.by_claim)
    container: dict[str, Any] = {"name": "main"}
    if resource:
        container["resources"] = {"limits": {resource: 1}}
    elif pool.by_claim:
        container["resources"] = {"claims": [{"name": dra.REQUEST}]}
        spec["resourceClaims"] = [{"name": dra.REQUEST, "resourceClaimTemplateName": "TEMPLATE"}]
    spec["containers"] = [container]
    comments = [f"# A pod on pool {name}: {_offered(offers) or 'GPUs by claim' if pool.gpus else 'no GPUs'}."]
    taints = sharing.pool_taints(env, pool)
    if taints and all(pod_needs.tolerated_at_admission(env, taint, offers) for taint in taints):
        comments.append("# EKS adds the toleration itself (admission plugin ExtendedResourceToleration).")
    elif resource and env.admission == "fix":
        comments.append("# The API server adds all but the limits and the selector itself (admission: fix).")
    if pool.by_claim:
        classes = ", ".join(allocatable.claimable(pool))
        comments.append(f"# TEMPLATE: a ResourceClaimTemplate of device class {classes}.")
    for team in env.queues.teams if env.queues else ():
        if name in team.quota:
            spaces = ", ".join(team.namespaces)
            comments.append(f"# In namespace {spaces}: metadata.labels: {{{labels.QUEUE}: {team.name}}}")
    return "\n".join(comments) + "\n" + sharing.to_yaml({"spec": spec})


def _offered(offers: dict[str, int]) -> str:
    each = [f"{count} {resource}" for resource, count in offers.items()]
    return f"a node offers {' and '.join(each)}" if each else ""
