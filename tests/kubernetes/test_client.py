"""The client's pauses between attempts, and its errors, against a server that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from gpuform.kubernetes import client as module
from gpuform.kubernetes.client import ApiError, Client, Unreachable
from gpuform.kubernetes.kubeconfig import Access

pytestmark = pytest.mark.unit


def played(answers: Iterator[httpx.Response]) -> Client:
    made = Client(Access(server="https://127.0.0.1:1"))
    made._http = httpx.AsyncClient(
        base_url="https://127.0.0.1:1", transport=httpx.MockTransport(lambda _: next(answers))
    )
    return made


@pytest.mark.parametrize(
    ("header", "pauses"),
    [
        ("2", [2.0, 2.0, 2.0]),
        ("0", [0.0, 0.0, 0.0]),
        (None, [0.2, 0.8, 3.2]),
        ("Wed, 21 Oct 2026 07:28:00 GMT", [0.2, 0.8, 3.2]),
        ("1.5", [0.2, 0.8, 3.2]),
        ("-1", [0.2, 0.8, 3.2]),
        ("nan", [0.2, 0.8, 3.2]),
        ("99999999999", [10.0, 10.0, 10.0]),
    ],
)
def test_a_busy_server_is_asked_again_after_a_bounded_pause(
    header: str | None, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    headers = {} if header is None else {"Retry-After": header}
    client = played(iter([httpx.Response(429, headers=headers)] * 4))
    with pytest.raises(ApiError):
        asyncio.run(client.get("/api"))
    assert slept == pytest.approx(pauses)


@pytest.mark.parametrize("token", ["c4nary\n4711", "c4nary 4711", "c4naryé"])
def test_a_token_that_no_header_can_hold_is_in_no_message(token: str) -> None:
    with pytest.raises(
        Unreachable, match="no usable credentials: the token is not one word of ASCII"
    ) as caught:
        asyncio.run(Client(Access(server="https://127.0.0.1:1", user={"token": token})).get("/api"))
    assert "c4nary" not in str(caught.value)
