"""Rules over Magnum: node groups, control plane, credentials, and exposure of the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policies import contract
from policies.rule import Resource, Rule, get, mapping, text

_SECRETS = ("password", "applicationCredentialSecret", "token")
_TRUE = (True, "true", "True")


def has_label(resource: Resource, name: str) -> bool:
    """Whether a cluster has one of Magnum's labels set to true."""
    return resource.type == contract.MAGNUM_CLUSTER and get(resource.props, "labels", name) in _TRUE


def _bounded(group: Resource, _: Sequence[Resource]) -> Iterator[str]:
    count, minimum, maximum = (_number(group, key) for key in ("nodeCount", "minNodeCount", "maxNodeCount"))
    if minimum is not None and maximum is not None and minimum > maximum:
        yield f"minNodeCount {minimum} is more than maxNodeCount {maximum}"
        return
    if count is not None and minimum is not None and count < minimum:
        yield f"nodeCount {count} is less than minNodeCount {minimum}: Magnum refuses it"
    if count is not None and maximum is not None and count > maximum:
        yield f"nodeCount {count} is more than maxNodeCount {maximum}: Magnum refuses it"


def _number(resource: Resource, key: str) -> int | None:
    value = get(resource.props, key)
    return None if value is None else int(value)  # the engine's numbers are floats


def _guarded(resource: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    """Matched by name: a cluster's guard has it in ``fixed``, a node group's in ``what``."""
    name = text(resource.props, "name")
    for other in resources:
        if other.type == contract.REPLACEMENT_GUARD:
            guarded_names = text(other.props, "fixed", "name"), text(other.props, "what")
            if (name if resource.type == contract.MAGNUM_CLUSTER else f"node group {name}") in guarded_names:
                return
    loss = "everything in it" if resource.type == contract.MAGNUM_CLUSTER else "its nodes"
    yield f"{name} has no ReplacementGuard: a change that Magnum cannot make in place deletes {loss}"


def _nodes_selected(group: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    """A selector names the group as the value of a label; which label depends on Magnum's driver."""
    name = text(group.props, "name")
    for other in resources:
        if other.type == contract.POOL_NODES:
            terms = text(other.props, "selector").split(",")
            if name in [term.partition("=")[2] for term in terms]:
                return
    yield f"no PoolNodes selects the nodes of group {name}: they join without labels and taints"


def _count_ignored(group: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    minimum, maximum = _number(group, "minNodeCount"), _number(group, "maxNodeCount")
    if maximum is None or maximum == minimum or "nodeCount" in group.ignores:
        return
    if any(has_label(other, "auto_scaling_enabled") for other in resources):
        yield "Magnum's autoscaler changes nodeCount, and every update would set it back"


def _masters(cluster: Resource, _: Sequence[Resource]) -> Iterator[str]:
    count = _number(cluster, "masterCount") or 1
    if count % 2 == 0:
        yield f"masterCount is {count}: etcd tolerates no more failures than with {count - 1}"
    if count > 1 and get(cluster.props, "masterLbEnabled") is False:
        yield f"has {count} masters and no load balancer in front of them: clients know only the first"


def _credentials(provider: Resource, _: Sequence[Resource]) -> Iterator[str]:
    for key in _SECRETS:
        if get(provider.props, key) is not None:
            yield f"{key} is an argument of the provider, and thus in the state of every stack that uses it"


def _encrypted(provider: Resource, _: Sequence[Resource]) -> Iterator[str]:
    if get(provider.props, "insecure") in _TRUE:
        yield "insecure: a man in the middle can read the credentials"


def _floating_ips(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    if get(resource.props, "floatingIpEnabled") in _TRUE:
        yield "every node gets a floating IP, those with GPUs too: their kubelets are reachable from outside"


def _labels_merged(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    if mapping(resource.props, "labels") and get(resource.props, "mergeLabels") not in _TRUE:
        parent = "template" if resource.type == contract.MAGNUM_CLUSTER else "cluster"
        yield f"its labels replace all labels of the {parent}"


RULES = (
    Rule(
        "magnum-group-bounds",
        "The number of nodes in a Magnum node group is within its own bounds.",
        "high",
        "give nodes: N, or elastic: {min, max: {nodes}} with min at most max",
        (contract.MAGNUM_GROUP,),
        _bounded,
    ),
    Rule(
        "magnum-guarded",
        "No change replaces a Magnum cluster or node group without permission.",
        "high",
        "declare it by an environment, which has a guard for each, or put a ReplacementGuard before it",
        (contract.MAGNUM_CLUSTER, contract.MAGNUM_GROUP),
        _guarded,
        whole_stack=True,
    ),
    Rule(
        "magnum-nodes-labelled",
        "Nodes of a Magnum node group get labels and taints; Magnum gives them none.",
        "high",
        "declare the group as a pool, or a PoolNodes with the group's name in its selector",
        (contract.MAGNUM_GROUP,),
        _nodes_selected,
        whole_stack=True,
    ),
    Rule(
        "magnum-count-ignored",
        "An update does not change the autoscaler's number of nodes.",
        "high",
        'ignore_changes=["nodeCount"] on the group, or the same minNodeCount and maxNodeCount',
        (contract.MAGNUM_GROUP,),
        _count_ignored,
        whole_stack=True,
    ),
    Rule(
        "magnum-masters",
        "The control plane survives the loss of a master, if it has several.",
        "medium",
        "1, 3 or 5 masters, and with more than one masterLbEnabled",
        (contract.MAGNUM_CLUSTER,),
        _masters,
    ),
    Rule(
        "openstack-credentials",
        "No OpenStack credential is written into a stack.",
        "critical",
        "name an entry of clouds.yaml by cluster.cloud, or set the OS_ variables",
        (contract.OPENSTACK,),
        _credentials,
    ),
    Rule(
        "openstack-tls",
        "Connections to OpenStack are verified by TLS.",
        "critical",
        "leave TLS on; a private CA belongs in clouds.yaml (cacert)",
        (contract.OPENSTACK,),
        _encrypted,
    ),
    Rule(
        "magnum-nodes-inside",
        "Nodes have no address that is reachable from outside.",
        "low",
        "network.floating_ip: false; a load balancer makes services reachable",
        (contract.MAGNUM_CLUSTER,),
        _floating_ips,
    ),
    Rule(
        "magnum-labels-merged",
        "Magnum's labels are merged with the inherited ones and do not replace them.",
        "low",
        "merge_labels: true",
        (contract.MAGNUM_CLUSTER, contract.MAGNUM_GROUP),
        _labels_merged,
    ),
)
