"""Clients of AWS's APIs, with the caller's own credentials and ``AWS_ENDPOINT_URL``."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpuform.checkout.errors import Failure, InputError, ServiceError

DENIED_CODES = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
"""Error codes of AWS services for missing permissions (IAM and EC2 API references, errors)."""

_RETRIES = {"total_max_attempts": 4, "mode": "standard"}
_CONNECT_S, _READ_S = 10, 60


_EXPIRED_CODES = ("ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId")


class AwsError(ServiceError):
    """An error response of AWS; ``code`` is the error code of its API, such as ``UnauthorizedOperation``."""

    def __init__(self, call: str, code: str, message: str) -> None:
        others = "check the credentials, their permissions and the region"
        super().__init__(call, f"{code}: {message}", _login() if code in _EXPIRED_CODES else others)
        self.code = code

    @property
    def denied(self) -> bool:
        return self.code in DENIED_CODES


def open_session() -> Any:
    """botocore's session, which finds the caller's credentials. Raises InputError without botocore."""
    try:
        import botocore.session
    except ImportError:
        raise InputError("botocore", "is not installed", "pip install 'gpuform[aws]'") from None
    return botocore.session.get_session()


def create_client(service: str, region: str) -> Any:
    """botocore's client of a service; creating it sends no request.

    Raises InputError if botocore is not installed, Failure for a missing profile. Use it within
    :func:`translate_errors`.
    """
    session = open_session()
    import botocore.config

    config = botocore.config.Config(retries=_RETRIES, connect_timeout=_CONNECT_S, read_timeout=_READ_S)
    session.register_component("data_loader", _models())
    with translate_errors(f"AWS client for {service}"):
        try:
            return session.create_client(service, region_name=region, config=config)
        except ValueError as error:
            fact, remedy = str(error), "check AWS_ENDPOINT_URL and the AWS config file"
            raise Failure(f"AWS client for {service}", fact, remedy) from None


@functools.cache
def _models() -> Any:
    """botocore's service models, loaded once: that of EC2 alone takes a second."""
    import botocore.loaders

    return botocore.loaders.create_loader()


def _login() -> str:
    profile = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    return f"aws sso login --profile {profile}, or without SSO: aws configure --profile {profile}"


@contextmanager
def translate_errors(call: str) -> Iterator[None]:
    """Turn botocore's errors into ours; ``call`` is the request, or the command to try by hand.

    Raises AwsError if AWS responds with an error, Failure if it does not respond or no credentials are found.
    """
    import botocore.exceptions as aws
    import botocore.session
    from botocore.parsers import ResponseParserError

    try:
        yield
    except aws.ClientError as error:
        details = error.response.get("Error", {})
        raise AwsError(call, details.get("Code", "Unknown"), details.get("Message", str(error))) from None
    except aws.ProfileNotFound as error:
        names = ", ".join(botocore.session.get_session().available_profiles) or "none"
        remedy = f"set AWS_PROFILE to a profile that `aws configure list-profiles` shows (now: {names})"
        raise Failure("AWS_PROFILE", str(error), remedy) from None
    except (aws.ConfigParseError, aws.ConfigNotFound, aws.InvalidConfigError) as error:
        raise Failure(
            "AWS config file", str(error), "correct it, or name another in AWS_CONFIG_FILE"
        ) from None
    except (aws.NoCredentialsError, aws.PartialCredentialsError) as error:
        raise Failure("AWS credentials", str(error), f"set AWS_PROFILE, or: {_login()}") from None
    except (aws.SSOError, aws.LoginError, aws.TokenRetrievalError, aws.CredentialRetrievalError) as error:
        raise Failure("AWS credentials", str(error), _login()) from None
    except aws.BotoCoreError as error:
        raise Failure(call, str(error), "check the network, AWS_PROFILE and AWS_ENDPOINT_URL") from None
    except ResponseParserError as error:  # a proxy's page instead of XML
        fact = f"is not a response from AWS: {str(error).partition(':')[0]}"
        raise Failure(call, fact, "check the network, a proxy and AWS_ENDPOINT_URL") from None
