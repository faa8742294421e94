"""Read-only queries to AWS about an account, each sent once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gpuform.clients.aws.api import AwsError, create_client, translate_errors
from infra.model.aws.values import PARTITIONS

CreateClient = Callable[[str, str], Any]
"""Creates a client of a service in a region, like ``gpuform.clients.aws.api.create_client``."""

_IAM_PREFIX = {"service-quotas": "servicequotas"}
"""Services with another name in IAM than in botocore (service authorization reference)."""

_HOME_REGIONS = {"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
"""A region of each partition that every account has, for queries about regions that it may not have."""


class Aws:
    """The caller's account, seen from one region.

    Answers are cached: nothing queried here changes within the seconds of a preflight. ``actions`` holds the
    IAM actions that were needed so far.
    """

    def __init__(self, region: str, create: CreateClient = create_client) -> None:
        self.region = region
        self.actions: set[str] = set()
        self._client = functools.cache(create)
        self._answers: dict[str, Mapping[str, Any]] = {}

    def query(
        self, service: str, operation: str, *, region: str | None = None, **parameters: Any
    ) -> Mapping[str, Any]:
        """All pages of the answer. Errors as `gpuform.clients.aws.api.translate_errors`, about the action."""
        with translate_errors(service):
            client = self._client(service, region or self.region)
        action = f"{_IAM_PREFIX.get(service, service)}:{client.meta.method_to_api_mapping[operation]}"
        self.actions.add(action)
        cache_key = f"{action} {region} {sorted(parameters.items())}"
        if cache_key not in self._answers:
            with translate_errors(action):
                self._answers[cache_key] = _request_all(client, operation, parameters)
        return self._answers[cache_key]

    def find(
        self, missing_codes: Collection[str], service: str, operation: str, **parameters: Any
    ) -> Mapping[str, Any]:
        """As ``query``; empty for an error of one of these codes."""
        try:
            return self.query(service, operation, **parameters)
        except AwsError as error:
            if error.code not in missing_codes:
                raise
            return {}


def home_region(region: str) -> str:
    """A region of the same partition that is always enabled."""
    partition = next((name for name, regions in PARTITIONS.items() if region in regions), "aws")
    return _HOME_REGIONS.get(partition, region)


def _request_all(client: Any, operation: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    if client.can_paginate(operation):
        answer: Mapping[str, Any] = client.get_paginator(operation).paginate(**parameters).build_full_result()
    else:
        answer = getattr(client, operation)(**parameters)
    return answer
