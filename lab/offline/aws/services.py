"""``aws:iam``, ``aws:kms``, ``aws:cloudwatch`` and ``aws:sqs``."""

from __future__ import annotations

from collections.abc import Mapping

from lab.offline.aws.row import Row, arn, words

_GLOBAL = "arn:{partition}:iam::{account}:"
_MOMENT = "2026-01-01T00:00:00Z"

IAM: Mapping[str, Row] = {
    "aws:iam/role:Role": Row(
        "iam.CreateRole",
        words(
            "assumeRolePolicy description forceDetachPolicies inlinePolicies managedPolicyArns "
            "maxSessionDuration name namePrefix path permissionsBoundary tags"
        ),
        id="{name}",
        replaces=words("name namePrefix path"),
        outputs={
            "arn": _GLOBAL + "role{path}{name}",
            "createDate": _MOMENT,
            "uniqueId": "AROA{HEX}",
        },
        places={
            "name": "RoleName",
            "namePrefix": None,
            "assumeRolePolicy": "AssumeRolePolicyDocument",
            "forceDetachPolicies": None,
            "inlinePolicies": None,
            "managedPolicyArns": None,
        },
        defaults={"path": "/", "maxSessionDuration": 3600, "forceDetachPolicies": False},
        named="name",
        documents=("assumeRolePolicy",),
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Row(
        "iam.AttachRolePolicy",
        words("policyArn role"),
        id="{inputs[role]}/{inputs[policyArn]}",
        replaces=("policyArn", "role"),
        places={"role": "RoleName"},
    ),
    "aws:iam/rolePolicy:RolePolicy": Row(
        "iam.PutRolePolicy",
        words("name namePrefix policy role"),
        id="{inputs[role]}:{name}",
        replaces=words("name namePrefix role"),
        places={
            "name": "PolicyName",
            "namePrefix": None,
            "policy": "PolicyDocument",
            "role": "RoleName",
        },
        named="name",
        documents=("policy",),
    ),
    "aws:iam/policy:Policy": Row(
        "iam.CreatePolicy",
        words("delayAfterPolicyCreationInMs description name namePrefix path policy tags"),
        id=_GLOBAL + "policy{path}{name}",
        replaces=words("description name namePrefix path"),
        outputs={"arn": "{id}", "policyId": "ANPA{HEX}", "attachmentCount": 0},
        places={
            "name": "PolicyName",
            "namePrefix": None,
            "policy": "PolicyDocument",
            "delayAfterPolicyCreationInMs": None,
        },
        defaults={"path": "/"},
        named="name",
        documents=("policy",),
    ),
}

OTHERS: Mapping[str, Row] = {
    "aws:kms/key:Key": Row(
        "kms.CreateKey",
        words(
            "bypassPolicyLockoutSafetyCheck customKeyStoreId customerMasterKeySpec deletionWindowInDays "
            "description enableKeyRotation isEnabled keyUsage multiRegion policy region rotationPeriodInDays "
            "tags xksKeyId"
        ),
        id="{uuid}",
        replaces=words("customKeyStoreId customerMasterKeySpec keyUsage multiRegion xksKeyId"),
        outputs={"arn": arn("kms", "key/{id}"), "keyId": "{id}", "multiRegion": False, "description": ""},
        places={
            "deletionWindowInDays": "ScheduleKeyDeletion:PendingWindowInDays",
            "enableKeyRotation": None,
            "isEnabled": None,
            "rotationPeriodInDays": "EnableKeyRotation:RotationPeriodInDays",
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
        words("name namePrefix region targetKeyId"),
        id="{name}",
        replaces=("name", "namePrefix"),
        outputs={
            "arn": arn("kms", "{name}"),
            "targetKeyArn": arn("kms", "key/{inputs[targetKeyId]}"),
        },
        places={"name": "AliasName", "namePrefix": None},
        named="name",
        renewed={"targetKeyArn": ("targetKeyId",)},
    ),
    "aws:cloudwatch/logGroup:LogGroup": Row(
        "logs.CreateLogGroup",
        words(
            "deletionProtectionEnabled kmsKeyId logGroupClass name namePrefix region retentionInDays "
            "skipDestroy tags"
        ),
        id="{name}",
        replaces=words("logGroupClass name namePrefix"),
        outputs={"arn": arn("logs", "log-group:{name}"), "logGroupClass": "STANDARD"},
        places={
            "name": "logGroupName",
            "namePrefix": None,
            "retentionInDays": "PutRetentionPolicy:retentionInDays",
            "skipDestroy": None,
        },
        defaults={"skipDestroy": False},
        named="name",
        guard="deletionProtectionEnabled",
    ),
    "aws:cloudwatch/eventRule:EventRule": Row(
        "events.PutRule",
        words(
            "description eventBusName eventPattern forceDestroy isEnabled name namePrefix region roleArn "
            "scheduleExpression state tags"
        ),
        id="{name}",
        replaces=words("eventBusName name namePrefix"),
        outputs={"arn": arn("events", "rule/{name}")},
        places={"namePrefix": None, "forceDestroy": None, "isEnabled": None},
        defaults={"eventBusName": "default", "forceDestroy": False},
        named="name",
        documents=("eventPattern",),
    ),
    "aws:cloudwatch/eventTarget:EventTarget": Row(
        "events.PutTargets",
        words(
            "appsyncTarget arn batchTarget deadLetterConfig ecsTarget eventBusName forceDestroy httpTarget "
            "input inputPath inputTransformer kinesisTarget redshiftTarget region retryPolicy roleArn rule "
            "runCommandTargets sagemakerPipelineTarget sqsTarget targetId"
        ),
        id="{inputs[rule]}-{name}",
        replaces=words("eventBusName rule targetId"),
        places={
            "rule": "Rule",
            "eventBusName": "EventBusName",
            "forceDestroy": None,
            "targetId": "Targets[0].Id",
            "sqsTarget": "Targets[0].SqsParameters",
            # Targets that no program here uses; they would need their own places.
            "appsyncTarget": None,
            "batchTarget": None,
            "ecsTarget": None,
            "httpTarget": None,
            "kinesisTarget": None,
            "redshiftTarget": None,
            "runCommandTargets": None,
            "sagemakerPipelineTarget": None,
            "inputTransformer": None,
        },
        under="Targets[0]",
        defaults={"eventBusName": "default", "forceDestroy": False},
        named="targetId",
    ),
    "aws:sqs/queue:Queue": Row(
        "sqs.CreateQueue",
        words(
            "contentBasedDeduplication deduplicationScope delaySeconds fifoQueue fifoThroughputLimit "
            "kmsDataKeyReusePeriodSeconds kmsMasterKeyId maxMessageSize messageRetentionSeconds name "
            "namePrefix policy receiveWaitTimeSeconds redriveAllowPolicy redrivePolicy region "
            "sqsManagedSseEnabled tags visibilityTimeoutSeconds"
        ),
        id="https://sqs.{region}.{suffix}/{account}/{name}",
        replaces=words("fifoQueue name namePrefix"),
        outputs={"arn": arn("sqs", "{name}"), "url": "{id}"},
        places={
            "name": "QueueName",
            "namePrefix": None,
            "contentBasedDeduplication": "Attributes.ContentBasedDeduplication",
            "deduplicationScope": "Attributes.DeduplicationScope",
            "delaySeconds": "Attributes.DelaySeconds",
            "fifoQueue": "Attributes.FifoQueue",
            "fifoThroughputLimit": "Attributes.FifoThroughputLimit",
            "kmsDataKeyReusePeriodSeconds": "Attributes.KmsDataKeyReusePeriodSeconds",
            "kmsMasterKeyId": "Attributes.KmsMasterKeyId",
            "maxMessageSize": "Attributes.MaximumMessageSize",
            "messageRetentionSeconds": "Attributes.MessageRetentionPeriod",
            "policy": "Attributes.Policy",
            "receiveWaitTimeSeconds": "Attributes.ReceiveMessageWaitTimeSeconds",
            "redriveAllowPolicy": "Attributes.RedriveAllowPolicy",
            "redrivePolicy": "Attributes.RedrivePolicy",
            "sqsManagedSseEnabled": "Attributes.SqsManagedSseEnabled",
            "visibilityTimeoutSeconds": "Attributes.VisibilityTimeout",
        },
        defaults={"delaySeconds": 0, "messageRetentionSeconds": 345600, "visibilityTimeoutSeconds": 30},
        named="name",
        documents=("policy", "redrivePolicy", "redriveAllowPolicy"),
    ),
    "aws:sqs/queuePolicy:QueuePolicy": Row(
        "sqs.SetQueueAttributes",
        words("policy queueUrl region"),
        id="{inputs[queueUrl]}",
        replaces=("queueUrl",),
        places={"policy": "Attributes.Policy"},
        documents=("policy",),
    ),
}
