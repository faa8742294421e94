"""``aws:iam``, ``aws:kms``, ``aws:cloudwatch`` and ``aws:sqs``."""

from __future__ import annotations

from collections.abc import Mapping

from lab.offline.aws.row import Row, arn, words

_GLOBAL = "arn:{partition}:iam::{account}:"
_MOMENT = "2026-01-01T00:00:00Z"

IAM: Mapping[str, Row] = {
    "aws:iam/role:Role": Row(
        "iam.CreateRole",
        id="{name}",
        replaces=words("name namePrefix path"),
        outputs={
            "arn": _GLOBAL + "role{path}{name}",
            "createDate": _MOMENT,
            "uniqueId": "AROA{HEX}",
        },
        places={
            "name": "RoleName",
            "assumeRolePolicy": "AssumeRolePolicyDocument",
            "forceDetachPolicies": None,
        },
        defaults={"path": "/", "maxSessionDuration": 3600, "forceDetachPolicies": False},
        named="name",
        documents=("assumeRolePolicy",),
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Row(
        "iam.AttachRolePolicy",
        id="{inputs[role]}/{inputs[policyArn]}",
        replaces=("policyArn", "role"),
        places={"role": "RoleName"},
        tagged=False,
    ),
    "aws:iam/policy:Policy": Row(
        "iam.CreatePolicy",
        id=_GLOBAL + "policy{path}{name}",
        replaces=words("description name namePrefix path"),
        outputs={"arn": "{id}", "policyId": "ANPA{HEX}", "attachmentCount": 0},
        places={"name": "PolicyName", "policy": "PolicyDocument"},
        defaults={"path": "/"},
        named="name",
        documents=("policy",),
    ),
}

OTHERS: Mapping[str, Row] = {
    "aws:kms/key:Key": Row(
        "kms.CreateKey",
        id="{uuid}",
        replaces=words("customKeyStoreId customerMasterKeySpec keyUsage multiRegion xksKeyId"),
        outputs={"arn": arn("kms", "key/{id}"), "keyId": "{id}", "multiRegion": False, "description": ""},
        places={
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
    "aws:kms/alias:Alias": Row(
        "kms.CreateAlias",
        id="{name}",
        replaces=("name", "namePrefix"),
        outputs={
            "arn": arn("kms", "{name}"),
            "targetKeyArn": arn("kms", "key/{inputs[targetKeyId]}"),
        },
        places={"name": "AliasName"},
        named="name",
        renewed={"targetKeyArn": ("targetKeyId",)},
        tagged=False,
    ),
    "aws:cloudwatch/logGroup:LogGroup": Row(
        "logs.CreateLogGroup",
        id="{name}",
        replaces=words("logGroupClass name namePrefix"),
        outputs={"arn": arn("logs", "log-group:{name}"), "logGroupClass": "STANDARD"},
        places={
            "name": "logGroupName",
            "retentionInDays": "PutRetentionPolicy:retentionInDays",
            "skipDestroy": None,
        },
        defaults={"skipDestroy": False},
        named="name",
        guard="deletionProtectionEnabled",
    ),
    "aws:cloudwatch/eventRule:EventRule": Row(
        "events.PutRule",
        id="{name}",
        replaces=words("eventBusName name namePrefix"),
        outputs={"arn": arn("events", "rule/{name}")},
        places={"forceDestroy": None},
        defaults={"eventBusName": "default", "forceDestroy": False},
        named="name",
        documents=("eventPattern",),
    ),
    "aws:cloudwatch/eventTarget:EventTarget": Row(
        "events.PutTargets",
        id="{inputs[rule]}-{name}",
        replaces=words("eventBusName rule targetId"),
        places={
            "rule": "Rule",
            "eventBusName": "EventBusName",
            "forceDestroy": None,
            "targetId": "Targets[0].Id",
        },
        under="Targets[0]",
        defaults={"eventBusName": "default", "forceDestroy": False},
        named="targetId",
        tagged=False,
    ),
    "aws:sqs/queue:Queue": Row(
        "sqs.CreateQueue",
        id="https://sqs.{region}.{suffix}/{account}/{name}",
        replaces=words("fifoQueue name namePrefix"),
        outputs={"arn": arn("sqs", "{name}"), "url": "{id}"},
        places={
            "name": "QueueName",
            "delaySeconds": "Attributes.DelaySeconds",
            "messageRetentionSeconds": "Attributes.MessageRetentionPeriod",
            "policy": "Attributes.Policy",
            "sqsManagedSseEnabled": "Attributes.SqsManagedSseEnabled",
            "visibilityTimeoutSeconds": "Attributes.VisibilityTimeout",
        },
        defaults={"delaySeconds": 0, "messageRetentionSeconds": 345600, "visibilityTimeoutSeconds": 30},
        named="name",
        documents=("policy",),
    ),
    "aws:sqs/queuePolicy:QueuePolicy": Row(
        "sqs.SetQueueAttributes",
        id="{inputs[queueUrl]}",
        replaces=("queueUrl",),
        places={"policy": "Attributes.Policy"},
        documents=("policy",),
        tagged=False,
    ),
}
