"""Rules over AWS: metadata service, encryption, logs, tags."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from policies import contract
from policies.rule import Resource, Rule, get, items, mapping, text

_LOGS = ("api", "audit", "authenticator")
_TRUE = (True, "true")


def _metadata(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    path = ("spec", "metadataOptions") if resource.type == contract.NODE_CLASS else ("metadataOptions",)
    options = mapping(resource.props, *path)
    if options.get("httpTokens") != "required":
        yield "metadataOptions.httpTokens is not required: a pod may assume the node's role with one request"
    limit = options.get("httpPutResponseHopLimit")
    if limit is None or limit > 1:
        shown = "missing" if limit is None else int(limit)  # the engine's numbers are floats
        yield f"metadataOptions.httpPutResponseHopLimit is {shown}: pods reach the node's role"


def _encrypted(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    if resource.type == contract.CLUSTER:
        if "secrets" not in items(resource.props, "encryptionConfig", "resources"):
            yield "Secrets are not encrypted with a KMS key"
        return
    spec = resource.props if resource.type == contract.LAUNCH_TEMPLATE else get(resource.props, "spec")
    for device in items(spec, "blockDeviceMappings"):
        if get(device, "ebs") is not None and get(device, "ebs", "encrypted") not in _TRUE:
            yield f"volume {get(device, 'deviceName')} is not encrypted"


def _logged(cluster: Resource, _: Sequence[Resource]) -> Iterator[str]:
    missing = [kind for kind in _LOGS if kind not in items(cluster.props, "enabledClusterLogTypes")]
    if missing:
        yield f"the control plane does not log {', '.join(missing)}"


def _tagged(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    if resource.type == contract.NODE_CLASS:
        if contract.ENVIRONMENT not in mapping(resource.props, "spec", "tags"):
            yield f"instances have no tag {contract.ENVIRONMENT}"
        return
    if resource.type == contract.LAUNCH_TEMPLATE:
        tagged = {
            text(tag_spec, "resourceType")
            for tag_spec in items(resource.props, "tagSpecifications")
            if contract.ENVIRONMENT in mapping(tag_spec, "tags")
        }
        for kind in ("instance", "volume"):
            if kind not in tagged:
                yield f"{kind}s have no tag {contract.ENVIRONMENT}"
        return
    tags = get(resource.props, "defaultTags")
    tags = json.loads(tags) if isinstance(tags, str) else tags  # a provider's own inputs are JSON texts
    if contract.ENVIRONMENT not in mapping(tags, "tags"):
        yield f"resources have no tag {contract.ENVIRONMENT}"


RULES = (
    Rule(
        "metadata-service",
        "Nodes answer only IMDSv2, with a hop limit of 1.",
        "high",
        "httpTokens: required and httpPutResponseHopLimit: 1",
        (contract.LAUNCH_TEMPLATE, contract.NODE_CLASS),
        _metadata,
    ),
    Rule(
        "encrypted",
        "Secrets and volumes are encrypted.",
        "high",
        "encryptionConfig with a KMS key; encrypted: true on every volume",
        (contract.CLUSTER, contract.LAUNCH_TEMPLATE, contract.NODE_CLASS),
        _encrypted,
    ),
    Rule(
        "control-plane-logs",
        "The control plane logs requests and who sent them.",
        "medium",
        f"enabledClusterLogTypes with {', '.join(_LOGS)}",
        (contract.CLUSTER,),
        _logged,
    ),
    Rule(
        "tags",
        "Resources with a cost are tagged with their environment.",
        "low",
        f"tag it {contract.ENVIRONMENT}",
        ("pulumi:providers:aws", contract.LAUNCH_TEMPLATE, contract.NODE_CLASS),
        _tagged,
    ),
)
