"""Converts between gRPC messages and a handler's values: requests, responses and errors."""

from __future__ import annotations

import asyncio
import functools
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf import any_pb2

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import Call, Cancelled, Checked, Diffed, Engine, InitFailed
from gpuform.provider.properties import to_struct
from gpuform.provider.protocol import provider_pb2, status_pb2

_Method = Callable[[Any, Any, Any], Awaitable[Any]]


def answered(method: _Method) -> _Method:
    """Turn a method's exceptions into gRPC statuses that the engine understands.

    `InitFailed` is sent as an ``ErrorResourceInitFailed`` detail, so that the engine keeps the half-made
    object. An unexpected exception becomes an error with its type; its traceback goes to stderr, which is
    logged.
    """

    @functools.wraps(method)
    async def wrapped(self: Any, request: Any, context: Any) -> Any:
        try:
            return await method(self, request, context)
        except InitFailed as failure:
            await context.abort(
                grpc.StatusCode.UNKNOWN, str(failure), (("grpc-status-details-bin", _init_failed(failure)),)
            )
        except Cancelled as failure:
            await context.abort(grpc.StatusCode.CANCELLED, str(failure))
        except OperationError as failure:
            await context.abort(grpc.StatusCode.UNKNOWN, str(failure))
        except Exception as failure:
            traceback.print_exc(file=sys.stderr)
            await context.abort(grpc.StatusCode.INTERNAL, f"{type(failure).__name__}: {failure}")

    return wrapped


def _init_failed(failure: InitFailed) -> bytes:
    detail = any_pb2.Any()
    detail.Pack(
        provider_pb2.ErrorResourceInitFailed(
            id=failure.id,
            properties=to_struct(failure.properties),
            reasons=failure.reasons,
            inputs=to_struct(failure.inputs) if failure.inputs is not None else None,
        )
    )
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(failure), details=[detail])
    data: bytes = status.SerializeToString()
    return data


def call(request: Any, engine: Engine, cancelled: asyncio.Event) -> Call:
    result = Call(urn=request.urn, type=request.type, name=request.name, engine=engine, cancelled=cancelled)
    result.preview = getattr(request, "preview", False)
    result.timeout = getattr(request, "timeout", 0.0) or None
    return result


def checked(result: Checked) -> provider_pb2.CheckResponse:
    failures = [provider_pb2.CheckFailure(property=name, reason=reason) for name, reason in result.failures]
    return provider_pb2.CheckResponse(inputs=to_struct(result.inputs), failures=failures)


def diffed(result: Diffed) -> provider_pb2.DiffResponse:
    """The response of diff; a change at a path in ``replaces`` becomes a replacement."""
    response = provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME
        if result.changes or result.replaces
        else provider_pb2.DiffResponse.DIFF_NONE,
        deleteBeforeReplace=result.delete_before_replace,
    )
    replaces = set(result.replaces)
    response.replaces.extend(result.replaces)
    response.diffs.extend(result.diffs)
    response.hasDetailedDiff = result.detailed
    if result.detailed:
        for path, change in result.changes.items():
            kind = f"{change.name}_REPLACE" if path in replaces else change.name
            response.detailedDiff[path].kind = provider_pb2.PropertyDiff.Kind.Value(kind)
    return response
