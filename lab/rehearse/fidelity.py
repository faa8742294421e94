"""Which parts of a rehearsal are real and which are simulated; shown with every result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from infra import versions
from infra.model.environment import Environment
from infra.plan.pool_keeper import kept_pools
from infra.plan.startup import any_gated
from lab.plane import controlling

Way = Literal["none", "aws", "counted"]

_REAL = "etcd, kube-apiserver, scheduler, controllers, helm, Pulumi engine, the program"
_SIMULATED = (
    "the nodes (kwok: no container runs, no image is pulled), NVIDIA's operands (lab.simulator), "
    "third-party charts (each a ConfigMap with its values)"
)
_MORE_REAL: Mapping[Way, tuple[str, ...]] = {
    "aws": ("Karpenter's AWS controller, with the NodePools and EC2NodeClasses as declared",)
}
_MORE_SIMULATED: Mapping[Way, tuple[str, ...]] = {
    "aws": (
        "AWS, on loopback: prices of our list, and unlimited capacity except for --short",
        "an instance joins two seconds after its launch",
    ),
    "counted": ("cluster-autoscaler: elastic groups have the nodes that the workloads need, by calculation",),
}
NOT_SHOWN: Mapping[Way, tuple[str, ...]] = {
    "counted": (
        "when cluster-autoscaler adds or removes a node, how long Magnum takes for it, and quotas",
        "how many surplus nodes it adds: pending pods fit on no node that has joined but offers no GPU yet",
        "pods of several workloads on one node: nodes are counted for each workload separately",
    )
}
"""What a way of buying cannot show."""

_BY_CLAIM = "NVIDIA's DRA driver: the simulator publishes each node's GPUs and slices for claims"
OPERATOR_REPLACED = "the cluster's own operator or node feature discovery: simulated by those of the stack"
_REQUESTS = (
    "requests: counters that the real Prometheus scrapes; from a node's launch on, a cold start is shorter "
    "than a real one, because a machine boots, and loads images and models, in no time"
)
_PACKER = "gpuform-packer, a second kube-scheduler with the stack's configuration and its account's rights"
_MONITORING = "Prometheus with the stack's rules, and kube-state-metrics; no other part of monitoring runs"
_CONTROLLER = "{}: its chart, CRDs and webhooks, and its controller with the rights of its account"
_OPERATOR = "{}{} and NFD, with their chart, CRDs and the rights of their accounts"
_CERTIFICATES = (
    "cert-manager: its chart, CRDs, webhooks, CA injector, and controllers of self-signed and CA issuers, "
    "with the rights of their accounts; programs of gpuform start them"
)


def real_parts(way: Way, env: Environment, operator: str = "") -> tuple[str, ...]:
    """The real parts; ``operator`` names NVIDIA's own with its version, if it runs."""
    pinned = versions.GPU_OPERATOR.removeprefix("v")
    other = "" if operator.endswith(pinned) else f" (the stack has {pinned})"
    parts = [
        _REAL,
        *([_OPERATOR.format(operator, other)] if operator else []),
        *([_PACKER] if env.uses_packer else []),
        *([_MONITORING] if env.monitoring else []),
        *(
            _CERTIFICATES if name.startswith("cert-manager") else _CONTROLLER.format(name)
            for name in controlling.declared_controllers(env)
        ),
        *_MORE_REAL.get(way, ()),
        *(["the readiness gate's program"] if any_gated(env) else []),
        *(["the pool keeper's program"] if kept_pools(env) else []),
    ]
    return tuple(dict.fromkeys(parts))


def simulated_parts(way: Way, env: Environment, assumed: tuple[str, ...], requests: bool) -> tuple[str, ...]:
    """The simulated parts; ``assumed``: what the nodes have although it is not declared.

    ``requests``: whether requests are played.
    """
    replaced = env.gpu_operator.mode == "existing" or not env.gpu_operator.nfd
    by_claim = any(pool.by_claim for pool in env.pools)
    optional = ((_BY_CLAIM, by_claim), (OPERATOR_REPLACED, replaced), (_REQUESTS, requests))
    return (
        _SIMULATED,
        *_MORE_SIMULATED.get(way, ()),
        *assumed,
        *(line for line, applies in optional if applies),
    )
