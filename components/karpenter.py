"""Karpenter: its IAM roles, its interruption queue, and its two Helm releases."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
from pulumi_aws import eks, iam
from pulumi_aws.cloudwatch.event_rule import EventRule
from pulumi_aws.sqs.queue import Queue
from pulumi_aws.sqs.queue_policy import QueuePolicy

from components.iam_role import iam_role
from components.manifest import helm_release
from infra.plan import eks as releases
from infra.plan import iam as documents
from infra.plan.charts import ChartRelease

TIMEOUT_S = 300
EVENT_TARGET = "aws:cloudwatch/eventTarget:EventTarget"


@dataclass(frozen=True, kw_only=True)
class KarpenterArgs:
    """The releases of Karpenter's CRDs and of its controller, and their place on AWS.

    ``node_role`` is the name of its nodes' IAM role, ``queue`` that of the SQS queue.
    """

    crds: ChartRelease
    controller: ChartRelease
    node_role: str
    queue: str
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
        node_role, access = self._node_role()
        queue, rules = self._queue()
        grants = self._controller_role(node_role, queue)
        crds = helm_release(f"{name}-crd", args.crds, TIMEOUT_S, self._child)
        after = pulumi.ResourceOptions(parent=self, depends_on=[crds, *access, *rules, *grants])
        helm_release(f"{name}-controller", args.controller, TIMEOUT_S, after)
        self.register_outputs({})

    def _node_role(self) -> tuple[iam.Role, list[pulumi.Resource]]:
        """The nodes' role, under the name in the EC2NodeClasses, and its access entry."""
        name = f"{self._name}-node"
        policies = {f"{name}-{policy}": policy for policy in documents.NODE_POLICIES}
        role, attachments = iam_role(
            name, documents.NODE, policies, self._args.partition, self, self._args.node_role
        )
        entry = eks.AccessEntry(
            name,
            cluster_name=self._args.cluster_name,
            principal_arn=role.arn,
            type="EC2_LINUX",
            opts=self._child,
        )
        return role, [*attachments, entry]

    def _queue(self) -> tuple[Queue, list[pulumi.Resource]]:
        name, child = f"{self._name}-interruption", self._child
        queue = Queue(
            name,
            name=self._args.queue,
            message_retention_seconds=documents.QUEUE_RETENTION_S,
            sqs_managed_sse_enabled=True,
            opts=child,
        )
        policy = queue.arn.apply(
            lambda arn: json.dumps(documents.queue_policy(documents.Scope(queue_arn=arn)))
        )
        rules: list[pulumi.Resource] = [QueuePolicy(name, queue_url=queue.id, policy=policy, opts=child)]
        for role, events in documents.INTERRUPTION_EVENTS.items():
            full_name, pattern = f"{self._name}-{role}", json.dumps(events, sort_keys=True)
            rule = EventRule(full_name, event_pattern=pattern, opts=child)
            # The SDK's class of this type imports all of CloudWatch.
            target = {"rule": rule.name, "arn": queue.arn}
            rules.append(pulumi.CustomResource(EVENT_TARGET, full_name, target, child))
        return queue, rules

    def _controller_role(self, node_role: iam.Role, queue: Queue) -> list[pulumi.Resource]:
        args, name, child = self._args, f"{self._name}-controller", self._child
        role, _ = iam_role(name, documents.POD, {}, args.partition, self)
        scope = pulumi.Output.all(
            cluster=args.cluster_name,
            partition=args.partition,
            account=args.account,
            queue_arn=queue.arn,
            node_role_arn=node_role.arn,
        ).apply(lambda values: documents.controller_policies(documents.Scope(region=args.region, **values)))
        grants: list[pulumi.Resource] = []
        for policy_name in documents.controller_policies():
            full_name, document = f"{self._name}-{policy_name}", scope[policy_name].apply(json.dumps)
            policy = iam.Policy(full_name, policy=document, opts=child)
            grants.append(
                iam.RolePolicyAttachment(full_name, role=role.name, policy_arn=policy.arn, opts=child)
            )
        association = eks.PodIdentityAssociation(
            name,
            cluster_name=args.cluster_name,
            namespace=releases.KARPENTER_NAMESPACE,
            service_account=releases.SERVICE_ACCOUNT,
            role_arn=role.arn,
            opts=child,
        )
        return [*grants, association]
