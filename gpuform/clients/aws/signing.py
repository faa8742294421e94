"""Requests to an API of AWS that botocore has no client of, signed with the caller's own credentials."""

from __future__ import annotations

from collections.abc import Generator

import httpx

from gpuform.clients.aws.api import open_session, translate_errors


class SigV4(httpx.Auth):
    """Signature Version 4 by botocore. Raises InputError without botocore.

    A request raises Failure if no credentials are found.
    """

    def __init__(self, service: str, region: str) -> None:
        self._session, self._service, self._region = open_session(), service, region

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        # The signature is of blanks as %20 (IAM user guide, "Create a canonical request").
        request.url = request.url.copy_with(query=request.url.query.replace(b"+", b"%20"))
        signed = AWSRequest(request.method, str(request.url))
        with translate_errors(f"{self._service} in {self._region}"):
            credentials = self._session.get_credentials()
            frozen = credentials.get_frozen_credentials() if credentials else None
            SigV4Auth(frozen, self._service, self._region).add_auth(signed)
        request.headers.update(dict(signed.headers.items()))
        yield request
