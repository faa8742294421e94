"""``aws:eks``, ``aws:iam`` and our other types; most are found by name, and their tags show the owner."""

from __future__ import annotations

from collections.abc import Mapping

from gpuform.clouds.aws.lookup import TAGS, Call, Look
from gpuform.clouds.aws.lookups_ec2 import EC2

_OF_CLUSTER = {"clusterName": "{inputs[clusterName]}"}
_NO_EKS = ("ResourceNotFoundException",)

EKS: Mapping[str, Look] = {
    "aws:eks/cluster:Cluster": Look(
        Call("eks.describe_cluster", {"name": "{inputs[name]}"}),
        "cluster",
        "name",
        tags="tags",
        none=_NO_EKS,
    ),
    "aws:eks/nodeGroup:NodeGroup": Look(
        Call("eks.describe_nodegroup", {**_OF_CLUSTER, "nodegroupName": "{inputs[nodeGroupName]}"}),
        "nodegroup",
        "nodegroupName",
        "{inputs[clusterName]}:{found}",
        tags="tags",
        none=_NO_EKS,
    ),
    "aws:eks/addon:Addon": Look(
        Call("eks.describe_addon", {**_OF_CLUSTER, "addonName": "{inputs[addonName]}"}),
        "addon",
        "addonName",
        "{inputs[clusterName]}:{found}",
        tags="tags",
        none=_NO_EKS,
    ),
    "aws:eks/accessEntry:AccessEntry": Look(
        Call("eks.describe_access_entry", {**_OF_CLUSTER, "principalArn": "{inputs[principalArn]}"}),
        "accessEntry",
        "principalArn",
        "{inputs[clusterName]}:{found}",
        tags="tags",
        none=_NO_EKS,
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": Look(
        Call(
            "eks.list_associated_access_policies", {**_OF_CLUSTER, "principalArn": "{inputs[principalArn]}"}
        ),
        "associatedAccessPolicies",
        "policyArn",
        "{inputs[clusterName]}#{inputs[principalArn]}#{found}",
        {"policyArn": "{inputs[policyArn]}"},
        none=_NO_EKS,
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": Look(
        Call(
            "eks.list_pod_identity_associations",
            {
                **_OF_CLUSTER,
                "namespace": "{inputs[namespace]}",
                "serviceAccount": "{inputs[serviceAccount]}",
            },
        ),
        "associations",
        "associationId",
        "{inputs[clusterName]},{found}",
        tags="association.tags",
        asks=Call("eks.describe_pod_identity_association", {**_OF_CLUSTER, "associationId": "{found}"}),
        none=_NO_EKS,
    ),
}

_NO_IAM = ("NoSuchEntity",)
_NO_QUEUE = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")
_NO_RULE = ("ResourceNotFoundException",)

OTHERS: Mapping[str, Look] = {
    "aws:iam/role:Role": Look(
        Call("iam.get_role", {"RoleName": "{inputs[name]}"}), "Role", "RoleName", tags="Tags", none=_NO_IAM
    ),
    "aws:iam/policy:Policy": Look(
        Call("iam.list_policies", {"Scope": "Local"}),
        "Policies",
        "Arn",
        where={"PolicyName": "{inputs[name]}"},
        tags="Tags",
        asks=Call("iam.list_policy_tags", {"PolicyArn": "{found}"}),
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Look(
        Call("iam.list_attached_role_policies", {"RoleName": "{inputs[role]}"}),
        "AttachedPolicies",
        "PolicyArn",
        "{inputs[role]}/{found}",
        {"PolicyArn": "{inputs[policyArn]}"},
        none=_NO_IAM,
    ),
    "aws:kms/key:Key": Look(
        Call(
            "resourcegroupstaggingapi.get_resources", {"ResourceTypeFilters": ["kms:key"], "TagFilters": TAGS}
        ),
        "ResourceTagMappingList",
        "ResourceARN",
        after="/",
        asks=Call("kms.describe_key", {"KeyId": "{found}"}),
        alive="KeyMetadata.Enabled",
    ),
    "aws:kms/alias:Alias": Look(
        Call("kms.list_aliases"),
        "Aliases",
        "AliasName",
        where={"AliasName": "{inputs[name]}", "TargetKeyId": "{inputs[targetKeyId]}"},
    ),
    "aws:cloudwatch/logGroup:LogGroup": Look(
        Call("logs.describe_log_groups", {"logGroupNamePrefix": "{inputs[name]}"}),
        "logGroups",
        "logGroupName",
        where={"logGroupName": "{inputs[name]}"},
        tags="tags",
        asks=Call("logs.list_tags_log_group", {"logGroupName": "{found}"}),
    ),
    "aws:cloudwatch/eventRule:EventRule": Look(
        Call("events.list_rules", {"NamePrefix": "{inputs[name]}"}),
        "Rules",
        "Name",
        where={"Name": "{inputs[name]}"},
        tags="Tags",
        asks=Call("events.list_tags_for_resource", {"ResourceARN": "{item[Arn]}"}),
    ),
    "aws:cloudwatch/eventTarget:EventTarget": Look(
        Call("events.list_targets_by_rule", {"Rule": "{inputs[rule]}"}),
        "Targets",
        "Id",
        "{inputs[rule]}/{found}",
        {"Arn": "{inputs[arn]}"},
        none=_NO_RULE,
    ),
    "aws:sqs/queue:Queue": Look(
        Call("sqs.get_queue_url", {"QueueName": "{inputs[name]}"}),
        "@",
        "QueueUrl",
        tags="Tags",
        asks=Call("sqs.list_queue_tags", {"QueueUrl": "{found}"}),
        none=_NO_QUEUE,
    ),
    "aws:sqs/queuePolicy:QueuePolicy": Look(
        Call("sqs.get_queue_attributes", {"QueueUrl": "{inputs[queueUrl]}", "AttributeNames": ["Policy"]}),
        "Attributes",
        "Policy",
        "{inputs[queueUrl]}",
        none=_NO_QUEUE,
    ),
}

LOOKS: Mapping[str, Look] = {**EC2, **EKS, **OTHERS}
