"""Karpenter: its IAM roles, its interruption queue, and its two Helm releases."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
from pulumi_aws import cloudwatch, eks, iam, sqs
from pulumi_kubernetes.helm.v3 import Release

from components.chart import installed
from infra.model.environment import Environment
from infra.plan import eks as releases
from infra.plan import iam as documents
from infra.plan import node_class, trust
from infra.plan.charts import ChartRelease

TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class KarpenterArgs:
    """The environment with the elastic pools, and its place on AWS."""

    environment: Environment
    region: str
    partition: pulumi.Output[str]
    account: pulumi.Output[str]
    cluster_name: pulumi.Output[str]


class Karpenter(pulumi.ComponentResource):
    """Roles, the interruption queue with its rules, and the controller; see ElasticPools for the pools.

    The queue exists even without a spot pool: health events and ended reservations come through it, too.
    """

    def __init__(self, name: str, args: KarpenterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:aws:Karpenter", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        node_role, joined = self._node_role()
        queue, heard = self._queue()
        allowed = self._controller_role(node_role, queue)
        crds = self._release("crd", releases.karpenter_crd_release(args.environment), [])
        self._release(
            "controller", releases.karpenter_release(args.environment), [crds, *joined, *heard, *allowed]
        )
        self.register_outputs({})

    def _node_role(self) -> tuple[iam.Role, list[pulumi.Resource]]:
        """The nodes' role, under the name in the EC2NodeClasses, and its access entry."""
        role = iam.Role(
            f"{self._name}-node",
            name=node_class.node_role(self._args.environment),
            assume_role_policy=json.dumps(trust.trust_policy(trust.NODE)),
            opts=self._child,
        )
        made: list[pulumi.Resource] = [
            iam.RolePolicyAttachment(
                f"{self._name}-node-{policy}",
                role=role.name,
                policy_arn=pulumi.Output.format("arn:{0}:iam::aws:policy/{1}", self._args.partition, policy),
                opts=self._child,
            )
            for policy in documents.NODE_POLICIES
        ]
        entry = eks.AccessEntry(
            f"{self._name}-node",
            cluster_name=self._args.cluster_name,
            principal_arn=role.arn,
            type="EC2_LINUX",
            opts=self._child,
        )
        return role, [*made, entry]

    def _queue(self) -> tuple[sqs.Queue, list[pulumi.Resource]]:
        queue = sqs.Queue(
            f"{self._name}-interruption",
            name=releases.interruption_queue(self._args.environment),
            message_retention_seconds=documents.QUEUE_RETENTION_S,
            sqs_managed_sse_enabled=True,
            opts=self._child,
        )
        policy = sqs.QueuePolicy(
            f"{self._name}-interruption",
            queue_url=queue.id,
            policy=queue.arn.apply(
                lambda arn: json.dumps(documents.queue_policy(documents.Scope(queue_arn=arn)))
            ),
            opts=self._child,
        )
        made: list[pulumi.Resource] = [policy]
        for role, pattern in documents.INTERRUPTION_EVENTS.items():
            rule = cloudwatch.EventRule(
                f"{self._name}-{role}", event_pattern=json.dumps(pattern, sort_keys=True), opts=self._child
            )
            made.append(
                cloudwatch.EventTarget(
                    f"{self._name}-{role}", rule=rule.name, arn=queue.arn, opts=self._child
                )
            )
        return queue, made

    def _controller_role(self, node_role: iam.Role, queue: sqs.Queue) -> list[pulumi.Resource]:
        role = iam.Role(
            f"{self._name}-controller",
            assume_role_policy=json.dumps(trust.trust_policy(trust.POD)),
            opts=self._child,
        )
        made: list[pulumi.Resource] = []
        for short in documents.controller_policies():
            policy = iam.Policy(
                f"{self._name}-{short}", policy=self._document(short, node_role, queue), opts=self._child
            )
            made.append(
                iam.RolePolicyAttachment(
                    f"{self._name}-{short}", role=role.name, policy_arn=policy.arn, opts=self._child
                )
            )
        association = eks.PodIdentityAssociation(
            f"{self._name}-controller",
            cluster_name=self._args.cluster_name,
            namespace=releases.KARPENTER_NAMESPACE,
            service_account=releases.SERVICE_ACCOUNT,
            role_arn=role.arn,
            opts=self._child,
        )
        return [*made, association]

    def _document(self, short: str, node_role: iam.Role, queue: sqs.Queue) -> pulumi.Output[str]:
        args = self._args
        known = pulumi.Output.all(
            cluster=args.cluster_name,
            partition=args.partition,
            account=args.account,
            queue_arn=queue.arn,
            node_role_arn=node_role.arn,
        )
        return known.apply(
            lambda places: json.dumps(
                documents.controller_policies(documents.Scope(region=args.region, **places))[short]
            )
        )

    def _release(self, role: str, planned: ChartRelease, after: list[pulumi.Resource]) -> Release:
        return installed(
            f"{self._name}-{role}",
            planned,
            TIMEOUT_S,
            pulumi.ResourceOptions(parent=self, depends_on=after),
            skip_crds=True,  # the first release has them; Helm would never upgrade those of the second
        )
