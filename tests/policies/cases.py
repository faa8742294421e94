from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from policies.rule import Resource

FOLDER = Path(__file__).parent / "cases"
UNKNOWN = "???"
Kind = Literal["bad", "good", "unknown"]


@dataclass(frozen=True)
class Case:
    """Resources of one stack, and the rule's result: the fact ``finds``, none, or that it is unknown."""

    rule: str
    kind: Kind
    number: int
    resources: tuple[Resource, ...]
    finds: str = ""

    @property
    def id(self) -> str:
        return f"{self.rule}-{self.kind}-{self.number}"


def cases(module: str = "*") -> list[Case]:
    return [case for path in sorted(FOLDER.glob(f"{module}.yaml")) for case in _read_file(path)]


_TYPES = """
aws:ec2/launchTemplate:LaunchTemplate aws:ec2/securityGroup:SecurityGroup aws:sqs/queuePolicy:QueuePolicy
aws:ec2/securityGroupRule:SecurityGroupRule aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule
aws:eks/addon:Addon aws:eks/cluster:Cluster aws:eks/nodeGroup:NodeGroup
aws:iam/policy:Policy aws:iam/role:Role aws:iam/rolePolicyAttachment:RolePolicyAttachment
gpuform:hosts:HostConfiguration gpuform:nodes:MigLayout gpuform:nodes:PoolNodes
gpuform:nodes:SimulatedNodes gpuform:openstack:ReplacementGuard gpuform:workloads:BlueGreen
kubernetes:apps/v1:Deployment kubernetes:batch/v1:CronJob kubernetes:batch/v1:Job kubernetes:core/v1:ConfigMap
kubernetes:core/v1:Namespace kubernetes:core/v1:Node kubernetes:core/v1:Pod kubernetes:core/v1:Secret
kubernetes:autoscaling/v2:HorizontalPodAutoscaler kubernetes:policy/v1:PodDisruptionBudget
kubernetes:helm.sh/v3:Release kubernetes:karpenter.k8s.aws/v1:EC2NodeClass kubernetes:karpenter.sh/v1:NodePool
kubernetes:karpenter.sh/v1alpha1:NodeOverlay
kubernetes:keda.sh/v1alpha1:ScaledObject kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue
kubernetes:serving.kserve.io/v1beta1:InferenceService openstack:networking/secGroupRule:SecGroupRule
"""
TYPES = {one.rpartition(":")[2]: one for one in _TYPES.split()} | {
    f"Magnum{name}": f"openstack:containerinfra/{name[0].lower()}{name[1:]}:{name}"
    for name in ("Cluster", "ClusterTemplate", "NodeGroup")
}
"""Short names of types in the files; others are written in full."""


@cache
def _read_file(path: Path) -> tuple[Case, ...]:
    return tuple(_cases(path.read_text()))


def _cases(text: str) -> Iterator[Case]:
    for rule, kinds in yaml.safe_load(text).items():
        bad = [(entry, fact) for fact, entries in kinds["bad"].items() for entry in entries]
        others = {kind: [(entry, "") for entry in kinds[kind]] for kind in ("good", "unknown")}
        for kind, entries in {"bad": bad, **others}.items():
            for number, (entry, fact) in enumerate(entries):
                yield Case(rule, kind, number, tuple(map(_resource, range(len(entry)), entry)), fact)


def _resource(number: int, entry: dict[str, Any]) -> Resource:
    """From a type, perhaps a name, and after ``!`` the property of which changes are ignored."""
    ((key, props),) = entry.items()
    key, _, ignored = key.partition(" !")
    kind, _, name = key.partition(" ")
    # Without aliases: two resources never share an object.
    return Resource(
        TYPES.get(kind, kind), name or f"r{number}", copy.deepcopy(props), (ignored,) if ignored else ()
    )
