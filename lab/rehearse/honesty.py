"""Which parts of a rehearsal are real and which are simulated; shown with every result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

Way = Literal["none", "aws", "counted"]

_REAL = "etcd, kube-apiserver, scheduler, controllers, helm, Pulumi engine, the program"
_SIMULATED = (
    "the nodes (kwok: no container runs, no image is pulled), NVIDIA's operands (lab.simulator), "
    "third-party charts (each a ConfigMap with its values)"
)
_MORE_REAL: Mapping[Way, tuple[str, ...]] = {
    "none": (),
    "aws": ("Karpenter's AWS controller, with the NodePools and EC2NodeClasses as declared",),
    "counted": (),
}
_MORE_SIMULATED: Mapping[Way, tuple[str, ...]] = {
    "none": (),
    "aws": (
        "AWS, on loopback: prices of our list, and unlimited capacity except for --short",
        "an instance joins two seconds after its launch",
    ),
    "counted": ("cluster-autoscaler: elastic groups have the nodes that the workloads need, by calculation",),
}

_BLIND = (
    "when cluster-autoscaler adds or removes a node, how long Magnum takes for it, and quotas",
    "how many surplus nodes it adds: pending pods fit on no node that has joined but offers no GPU yet",
    "pods of several workloads on one node: nodes are counted for each workload separately",
)

BY_CLAIM = "NVIDIA's DRA driver: the simulator publishes each node's GPUs and slices for claims"
THEIRS = "the cluster's own operator or node feature discovery: simulated by those of the stack"
REQUESTS = (
    "requests: counters that the real Prometheus scrapes; from a node's launch on, a cold start is shorter "
    "than a real one, because a machine boots, and loads images and models, in no time"
)
PACKER = "gpuform-packer, a second kube-scheduler with the stack's configuration and its account's rights"
MONITORING = "Prometheus with the stack's rules, and kube-state-metrics; no other part of monitoring runs"
GATE = "the readiness gate's program"
KEEPER = "the pool keeper's program"


CONTROLLER = "{}: its chart, CRDs and webhooks, and its controller with the rights of its account"
CERTIFICATES = (
    "cert-manager: its chart, CRDs, webhooks, CA injector, and controllers of self-signed and CA issuers, "
    "with the rights of their accounts; programs of gpuform start them"
)


def real(
    way: Way,
    packs: bool = False,
    gated: bool = False,
    monitored: bool = False,
    kept: bool = False,
    controllers: Sequence[str] = (),
) -> tuple[str, ...]:
    """The real parts; ``packs``: the stack has a scheduler of its own.

    ``gated``: nodes must pass the readiness gate. ``monitored``: the stack declares monitoring. ``kept``: the
    pool keeper gives joining nodes their pool's labels and taints. ``controllers``: names of real ones.
    """
    own = [said for said, there in ((PACKER, packs), (MONITORING, monitored)) if there]
    own += dict.fromkeys(
        CERTIFICATES if name.startswith("cert-manager") else CONTROLLER.format(name) for name in controllers
    )
    programs = [said for said, there in ((GATE, gated), (KEEPER, kept)) if there]
    return (_REAL, *own, *_MORE_REAL[way], *programs)


def simulated(way: Way) -> tuple[str, ...]:
    return (_SIMULATED, *_MORE_SIMULATED[way])


def blind(way: Way) -> tuple[str, ...]:
    """What this way of buying cannot show."""
    return _BLIND if way == "counted" else ()
