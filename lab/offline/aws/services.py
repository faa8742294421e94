"""``aws:iam``, ``aws:kms``, ``aws:cloudwatch`` and ``aws:sqs``."""

from __future__ import annotations

from collections.abc import Mapping

from lab.offline.aws.row import ResourceRow, arn_template, split_words

_GLOBAL = "arn:{partition}:iam::{account}:"
_MOMENT = "2026-01-01T00:00:00Z"

ROWS: Mapping[str, ResourceRow] = {
    "aws:iam/role:Role": ResourceRow(
        "iam.CreateRole",
        id="{name}",
        replaces=split_words("name namePrefix path"),
        outputs={"arn": _GLOBAL + "role{path}{name}", "createDate": _MOMENT, "uniqueId": "AROA{HEX}"},
        parameters={
            "name": "RoleName",
            "assumeRolePolicy": "AssumeRolePolicyDocument",
            "forceDetachPolicies": None,
        },
        defaults={"path": "/", "maxSessionDuration": 3600, "forceDetachPolicies": False},
        name_input="name",
        documents=("assumeRolePolicy",),
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": ResourceRow(
        "iam.AttachRolePolicy",
        id="{inputs[role]}/{inputs[policyArn]}",
        replaces=("policyArn", "role"),
        parameters={"role": "RoleName"},
        tagged=False,
    ),
    "aws:iam/policy:Policy": ResourceRow(
        "iam.CreatePolicy",
        id=_GLOBAL + "policy{path}{name}",
        replaces=split_words("description name namePrefix path"),
        outputs={"arn": "{id}", "policyId": "ANPA{HEX}", "attachmentCount": 0},
        parameters={"name": "PolicyName", "policy": "PolicyDocument"},
        defaults={"path": "/"},
        name_input="name",
        documents=("policy",),
    ),
    "aws:kms/key:Key": ResourceRow(
        "kms.CreateKey",
        id="{uuid}",
        replaces=split_words("customKeyStoreId customerMasterKeySpec keyUsage multiRegion xksKeyId"),
        outputs={
            "arn": arn_template("kms", "key/{id}"),
            "keyId": "{id}",
            "multiRegion": False,
            "description": "",
        },
        parameters={
            "deletionWindowInDays": "ScheduleKeyDeletion:PendingWindowInDays",
            "enableKeyRotation": None,
            "isEnabled": None,
        },
        defaults={
            "bypassPolicyLockoutSafetyCheck": False,
            "customerMasterKeySpec": "SYMMETRIC_DEFAULT",
            "isEnabled": True,
            "keyUsage": "ENCRYPT_DECRYPT",
        },
        documents=("policy",),
    ),
    "aws:kms/alias:Alias": ResourceRow(
        "kms.CreateAlias",
        id="{name}",
        replaces=("name", "namePrefix"),
        outputs={
            "arn": arn_template("kms", "{name}"),
            "targetKeyArn": arn_template("kms", "key/{inputs[targetKeyId]}"),
        },
        parameters={"name": "AliasName"},
        name_input="name",
        renewed_outputs={"targetKeyArn": ("targetKeyId",)},
        tagged=False,
    ),
    "aws:cloudwatch/logGroup:LogGroup": ResourceRow(
        "logs.CreateLogGroup",
        id="{name}",
        replaces=split_words("logGroupClass name namePrefix"),
        outputs={"arn": arn_template("logs", "log-group:{name}"), "logGroupClass": "STANDARD"},
        parameters={
            "name": "logGroupName",
            "retentionInDays": "PutRetentionPolicy:retentionInDays",
            "skipDestroy": None,
        },
        defaults={"skipDestroy": False},
        name_input="name",
        deletion_guard="deletionProtectionEnabled",
    ),
    "aws:cloudwatch/eventRule:EventRule": ResourceRow(
        "events.PutRule",
        id="{name}",
        replaces=split_words("eventBusName name namePrefix"),
        outputs={"arn": arn_template("events", "rule/{name}")},
        parameters={"forceDestroy": None},
        defaults={"eventBusName": "default", "forceDestroy": False},
        name_input="name",
        documents=("eventPattern",),
    ),
    "aws:cloudwatch/eventTarget:EventTarget": ResourceRow(
        "events.PutTargets",
        id="{inputs[rule]}-{name}",
        replaces=split_words("eventBusName rule targetId"),
        parameters={
            "rule": "Rule",
            "eventBusName": "EventBusName",
            "forceDestroy": None,
            "targetId": "Targets[0].Id",
        },
        parent="Targets[0]",
        defaults={"eventBusName": "default", "forceDestroy": False},
        name_input="targetId",
        tagged=False,
    ),
    "aws:sqs/queue:Queue": ResourceRow(
        "sqs.CreateQueue",
        id="https://sqs.{region}.{suffix}/{account}/{name}",
        replaces=split_words("fifoQueue name namePrefix"),
        outputs={"arn": arn_template("sqs", "{name}"), "url": "{id}"},
        parameters={
            "name": "QueueName",
            "delaySeconds": "Attributes.DelaySeconds",
            "messageRetentionSeconds": "Attributes.MessageRetentionPeriod",
            "policy": "Attributes.Policy",
            "sqsManagedSseEnabled": "Attributes.SqsManagedSseEnabled",
            "visibilityTimeoutSeconds": "Attributes.VisibilityTimeout",
        },
        defaults={"delaySeconds": 0, "messageRetentionSeconds": 345600, "visibilityTimeoutSeconds": 30},
        name_input="name",
        documents=("policy",),
    ),
    "aws:sqs/queuePolicy:QueuePolicy": ResourceRow(
        "sqs.SetQueueAttributes",
        id="{inputs[queueUrl]}",
        replaces=("queueUrl",),
        parameters={"policy": "Attributes.Policy"},
        documents=("policy",),
        tagged=False,
    ),
}
