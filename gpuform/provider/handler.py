"""The interface of a plugin's resource type: the call, the answers and the errors, and their messages."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import grpc
from google.protobuf import any_pb2

from gpuform.checkout.errors import OperationError
from gpuform.provider.properties import to_struct
from gpuform.provider.protocol import engine_pb2, engine_pb2_grpc, provider_pb2, status_pb2

Properties = dict[str, Any]
_Method = Callable[[Any, Any, Any], Awaitable[Any]]


class Engine:
    """The connection to the engine that started this plugin, for messages to the user.

    Without an address (a test, a plugin started by hand) every message is dropped. So is a message that
    cannot be delivered: it must not fail the operation.
    """

    def __init__(self, stub: engine_pb2_grpc.EngineStub | None = None, address: str = "") -> None:
        self._stub = stub
        self.address = address

    async def log(self, text: str, *, severity: int, urn: str = "", ephemeral: bool = False) -> None:
        """Show ``text`` at ``urn``; an ephemeral text is a status that the next one replaces."""
        if self._stub is None:
            return
        request = engine_pb2.LogRequest(
            severity=severity,  # type: ignore[arg-type]
            message=text,
            urn=urn,
            ephemeral=ephemeral,
        )
        with contextlib.suppress(Exception):
            await self._stub.Log(request, timeout=5)


class Cancelled(Exception):
    """The user cancelled the run; raised by `Call.sleep`."""


@dataclass
class Call:
    """One call of the engine: its resource, its options, and messages to the user.

    ``timeout`` is the user's customTimeouts in seconds, ``None`` if unset.
    """

    urn: str
    type: str
    name: str
    engine: Engine
    cancelled: asyncio.Event
    preview: bool = False
    timeout: float | None = None

    async def status(self, text: str) -> None:
        """Show a status; the next status replaces it."""
        await self.engine.log(text, severity=engine_pb2.INFO, urn=self.urn, ephemeral=True)

    async def info(self, text: str) -> None:
        """Show a message that stays on the screen."""
        await self.engine.log(text, severity=engine_pb2.INFO, urn=self.urn)

    async def warn(self, text: str) -> None:
        await self.engine.log(text, severity=engine_pb2.WARNING, urn=self.urn)

    async def sleep(self, seconds: float) -> None:
        """Wait, or raise `Cancelled` as soon as the user cancels."""
        try:
            await asyncio.wait_for(self.cancelled.wait(), seconds)
        except TimeoutError:
            return
        raise Cancelled(f"{self.name}: cancelled")


class InitFailed(Exception):
    """The object exists but is not ready: the engine keeps it in its state.

    Raised by create and update: the next update tries again. ``reasons`` say what is not ready.
    """

    def __init__(self, id: str, properties: Properties, reasons: Sequence[str]) -> None:
        """``properties`` are what a create would return."""
        super().__init__("; ".join(reasons))
        self.id = id
        self.properties = properties
        self.reasons = tuple(reasons)


@dataclass(frozen=True)
class CheckResult:
    """Answer of check: the inputs with defaults, or ``failures`` as pairs (property, reason)."""

    inputs: Properties
    failures: Sequence[tuple[str, str]] = ()


def unknown_inputs(inputs: Properties, known: Sequence[str]) -> list[tuple[str, str]]:
    """A failure for each input that a type does not have."""
    reason = f"is not an input; the inputs are {', '.join(known)}"
    return [(key, reason) for key in inputs if key not in known]


class Change(Enum):
    """What happens to one property."""

    ADD = "add"
    DELETE = "delete"
    UPDATE = "update"


@dataclass(frozen=True)
class DiffResult:
    """Answer of diff.

    ``changes`` maps a property path (``spec.replicas``, ``spec.ports[0].port``) to its kind of change;
    ``replaces`` are the paths that force a replacement. No change is an empty map. ``diffs`` are top-level
    property names, computed from the paths if not given.
    """

    changes: Mapping[str, Change] = field(default_factory=dict)
    replaces: Sequence[str] = ()
    delete_before_replace: bool = False
    diffs: Sequence[str] = ()
    detailed: bool = True


@dataclass(frozen=True)
class ReadResult:
    """Answer of read: ``inputs`` are what a program would declare to get this object."""

    id: str
    properties: Properties
    inputs: Properties


class Handler(Protocol):
    """One resource type, or several that behave alike. Dicts may contain `Secret` and `UNKNOWN`.

    Errors: `OperationError` for what the user must see, `InitFailed` for an object that is not ready.
    Handlers run concurrently in one event loop and keep no state per resource.
    """

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        """Validate ``news`` and fill in defaults; ``olds`` are the last inputs, empty for a new resource."""

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> DiffResult:
        """Compare ``news`` with the old inputs and with ``olds`` (the outputs in the state)."""

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        """Create the object and return (id, outputs); in a preview change nothing and return an empty id."""

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """Read the live object; None if it is gone. On import ``inputs`` and ``olds`` are empty."""

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """Update the object in place and return the outputs; with ``call.preview`` change nothing."""

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Delete the object; an object that is already gone is not an error."""


def with_grpc_status(method: _Method) -> _Method:
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
        )
    )
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(failure), details=[detail])
    data: bytes = status.SerializeToString()
    return data


def check_response(result: CheckResult) -> provider_pb2.CheckResponse:
    failures = [provider_pb2.CheckFailure(property=name, reason=reason) for name, reason in result.failures]
    return provider_pb2.CheckResponse(inputs=to_struct(result.inputs), failures=failures)


def diff_response(result: DiffResult) -> provider_pb2.DiffResponse:
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
