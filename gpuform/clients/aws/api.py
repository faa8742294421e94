"""Clients of AWS's APIs, with the caller's own credentials and ``AWS_ENDPOINT_URL``."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpuform.checkout.errors import Failure, InputError, ServiceError

DENIED_CODES = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
"""Error codes of AWS services for missing permissions (IAM and EC2 API references, errors)."""

_RETRIES = {"total_max_attempts": 4, "mode": "standard"}
_CONNECT_S, _READ_S = 10, 60


class AwsError(ServiceError):
    """An error response of AWS; ``code`` is the error code of its API, such as ``UnauthorizedOperation``."""

    def __init__(self, call: str, code: str, message: str) -> None:
        super().__init__(
            call, f"{code}: {message}", "check the credentials, their permissions and the region"
        )
        self.code = code

    @property
    def denied(self) -> bool:
        return self.code in DENIED_CODES


def create_client(service: str, region: str) -> Any:
    """botocore's client of a service; creating it sends no request.

    Raises InputError if botocore is not installed, Failure for a missing profile. Use it within
    :func:`translate_errors`.
    """
    try:
        import botocore.config
        import botocore.session
    except ImportError:
        raise InputError("botocore", "is not installed", "pip install 'gpuform[offline]'") from None
    config = botocore.config.Config(retries=_RETRIES, connect_timeout=_CONNECT_S, read_timeout=_READ_S)
    session = botocore.session.get_session()
    session.register_component("data_loader", _models())
    with translate_errors(f"AWS client for {service}"):
        return session.create_client(service, region_name=region, config=config)


@functools.cache
def _models() -> Any:
    """botocore's service models, loaded once: that of EC2 alone takes a second."""
    import botocore.loaders

    return botocore.loaders.create_loader()


@contextmanager
def translate_errors(call: str) -> Iterator[None]:
    """Turn botocore's errors into ours; ``call`` is the request, or the command to try by hand.

    Raises Refused if AWS responds with an error, Failure if it does not respond or no credentials are found.
    """
    import botocore.exceptions as aws
    from botocore.parsers import ResponseParserError

    try:
        yield
    except aws.ClientError as error:
        details = error.response.get("Error", {})
        raise AwsError(call, details.get("Code", "Unknown"), details.get("Message", str(error))) from None
    except (aws.NoCredentialsError, aws.PartialCredentialsError) as error:
        remedy = "set AWS_PROFILE, or run `aws sso login` or `aws configure`"
        raise Failure("AWS credentials", str(error), remedy) from None
    except aws.BotoCoreError as error:
        raise Failure(call, str(error), "check the network, AWS_PROFILE and AWS_ENDPOINT_URL") from None
    except ResponseParserError as error:  # a proxy's page instead of XML
        fact = f"is not a response from AWS: {str(error).partition(':')[0]}"
        raise Failure(call, fact, "check the network, a proxy and AWS_ENDPOINT_URL") from None
