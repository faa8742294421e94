"""An IAM role with policies of AWS."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pulumi
from pulumi_aws import iam

from infra.plan.iam import trust_policy


def iam_role(
    name: str,
    service: str,
    policies: Mapping[str, str],
    partition: pulumi.Input[str],
    parent: pulumi.Resource,
    role_name: str | None = None,
) -> tuple[iam.Role, list[pulumi.Resource]]:
    """Register the role that ``service`` may assume, and its policies, by the attachments' names."""
    child = pulumi.ResourceOptions(parent=parent)
    role = iam.Role(name, name=role_name, assume_role_policy=json.dumps(trust_policy(service)), opts=child)
    attachments: list[pulumi.Resource] = [
        iam.RolePolicyAttachment(
            attachment,
            role=role.name,
            policy_arn=pulumi.Output.format("arn:{0}:iam::aws:policy/{1}", partition, policy),
            opts=child,
        )
        for attachment, policy in policies.items()
    ]
    return role, attachments
