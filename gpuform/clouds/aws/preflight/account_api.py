"""Read-only queries to AWS about an account, each sent once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gpuform.clients.aws.api import Refused, answers, client

Clients = Callable[[str, str], Any]
"""Creates a client of a service in a region, like ``gpuform.clients.aws.api.client``."""

_IAM_PREFIX = {"service-quotas": "servicequotas"}
"""Services with another name in IAM than in botocore (service authorization reference)."""

_HOME = {"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
"""A region of each partition that every account has, for queries about regions that it may not have."""


class Aws:
    """The caller's account, seen from one region.

    Answers are cached: nothing queried here changes within the seconds of a preflight. ``asked`` holds the
    IAM actions that were needed so far.
    """

    def __init__(self, region: str, clients: Clients = client) -> None:
        self.region = region
        self.asked: set[str] = set()
        self._client = functools.cache(clients)
        self._answers: dict[str, Mapping[str, Any]] = {}

    def ask(
        self, service: str, operation: str, *, region: str | None = None, **parameters: Any
    ) -> Mapping[str, Any]:
        """All pages of the answer. Errors as `gpuform.clients.aws.api.answers`, about the action."""
        with answers(service):
            there = self._client(service, region or self.region)
        action = f"{_IAM_PREFIX.get(service, service)}:{there.meta.method_to_api_mapping[operation]}"
        self.asked.add(action)
        question = f"{action} {region} {sorted(parameters.items())}"
        if question not in self._answers:
            with answers(action):
                self._answers[question] = _whole(there, operation, parameters)
        return self._answers[question]

    def find(self, missing: Collection[str], service: str, operation: str, **given: Any) -> Mapping[str, Any]:
        """As ``ask``; empty for an error of one of these codes."""
        try:
            return self.ask(service, operation, **given)
        except Refused as refused:
            if refused.code not in missing:
                raise
            return {}

    @property
    def home(self) -> str:
        """A region of the same partition that is always enabled; our own region if botocore is missing."""
        return home(self.region)


@functools.cache
def home(region: str) -> str:
    try:
        import botocore.exceptions
        import botocore.session
    except ImportError:
        return region
    try:
        partition = botocore.session.get_session().get_partition_for_region(region)
    except botocore.exceptions.UnknownRegionError:
        partition = "aws"
    return _HOME.get(partition, region)


def _whole(there: Any, operation: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    if there.can_paginate(operation):
        found: Mapping[str, Any] = there.get_paginator(operation).paginate(**parameters).build_full_result()
    else:
        found = getattr(there, operation)(**parameters)
    return found
