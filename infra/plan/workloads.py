"""Namespaces and the workloads' own objects: requests, tolerations and where each may run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infra.model import checks, labels, offer
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.model.workload import DeploymentWorkload, JobWorkload, Workload
from infra.plan import dra, sharing

Manifest = dict[str, Any]
_USER = 1000  # any user but root; images that bring their own root user run as this one


def namespaces(env: Environment) -> tuple[Manifest, ...]:
    """The operator's namespace, privileged as its operands need it, and the workloads', restricted."""
    wanted = {workload.namespace for workload in env.workloads} - set(checks.BUILT_IN_NAMESPACES)
    found = [_namespace(env, sharing.NAMESPACE, "privileged")]
    return (*found, *(_namespace(env, name, "restricted") for name in sorted(wanted)))


def _namespace(env: Environment, name: str, level: str) -> Manifest:
    found = {
        labels.ENVIRONMENT: env.name,
        labels.MANAGED_BY: "gpuform",
        **dict.fromkeys((labels.PSA_AUDIT, labels.PSA_ENFORCE, labels.PSA_WARN), level),
    }
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": dict(sorted(found.items()))},
    }


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """One object per workload, in the order declared, after the template of its claim if it has one."""
    found: list[Manifest] = []
    for workload in env.workloads:
        if _by_claim(_pools(env, workload)):
            found.append(dra.claim_template(workload, _metadata(env, workload)))
        found.append(_manifest(env, workload))
    return tuple(found)


def _metadata(env: Environment, workload: Workload) -> Manifest:
    own = {labels.APP_NAME: workload.name, labels.ENVIRONMENT: env.name, labels.MANAGED_BY: "gpuform"}
    return {"name": workload.name, "namespace": workload.namespace, "labels": own}


def _by_claim(pools: Sequence[Pool]) -> bool:
    return any(pool.by_claim for pool in pools)


def _manifest(env: Environment, workload: Workload) -> Manifest:
    metadata = _metadata(env, workload)
    template = {"metadata": {"labels": metadata["labels"]}}
    if isinstance(workload, DeploymentWorkload):
        spec = {
            "replicas": workload.replicas,
            "selector": {"matchLabels": {labels.APP_NAME: workload.name}},
            "template": {**template, "spec": _pod_spec(env, workload, "Always")},
        }
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    if isinstance(workload, JobWorkload):
        spec = {
            "parallelism": workload.parallelism,
            "completions": workload.parallelism,
            "template": {**template, "spec": _pod_spec(env, workload, "Never")},
        }
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": _pod_spec(env, workload, "Always"),
    }


def _pod_spec(env: Environment, workload: Workload, restart: str) -> Manifest:
    pools = _pools(env, workload)
    requests = {"cpu": workload.cpu, "memory": workload.memory}
    limits = {"memory": workload.memory}
    resource = checks.request(env.gpu_operator.mig_strategy, pools, workload)
    if resource:
        requests[resource] = limits[resource] = str(workload.amount)
    container: Manifest = {
        "name": workload.name,
        "image": workload.image,
        "resources": {"requests": requests, "limits": limits},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if _by_claim(pools):
        container["resources"]["claims"] = [{"name": dra.REQUEST}]
    if workload.command:
        container["command"] = list(workload.command)
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "containers": [container],
        "restartPolicy": restart,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if _by_claim(pools):
        name = dra.template_name(workload)
        spec["resourceClaims"] = [{"name": dra.REQUEST, "resourceClaimTemplateName": name}]
    if workload.pool:
        spec["nodeSelector"] = {labels.POOL: workload.pool}
    if workload.gpu_product:
        spec["nodeSelector"] = {labels.GPU_PRODUCT: workload.gpu_product}
    tolerations = _tolerations(env, pools)
    if tolerations:
        spec["tolerations"] = tolerations
    return spec


def _pools(env: Environment, workload: Workload) -> Sequence[Pool]:
    """The pools whose nodes the workload names; none for a workload that asks for nothing special."""
    if workload.pool:
        return [env.pool(workload.pool)]
    product = workload.gpu_product
    return [pool for pool in env.pools if product and product in offer.products(env.strategy(pool), pool)]


def _tolerations(env: Environment, pools: Sequence[Pool]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for pool in pools:
        for taint in sharing.pool_taints(env, pool):
            entry = {
                "key": taint["key"],
                "operator": "Equal",
                "value": taint["value"],
                "effect": taint["effect"],
            }
            if entry not in found:
                found.append(entry)
    return found
