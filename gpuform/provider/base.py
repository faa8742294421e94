"""The base of every plugin process: a gRPC server that the engine starts, and a provider made of handlers.

A provider is a `ResourceProvider` with one `Handler` (see gpuform.provider.handler) per resource type, served
by `serve_provider`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import grpc.aio
from google.protobuf import empty_pb2

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import (
    Call,
    CheckResult,
    DiffResult,
    Engine,
    Handler,
    Properties,
    check_response,
    diff_response,
    with_grpc_status,
)
from gpuform.provider.properties import from_struct, to_struct
from gpuform.provider.protocol import engine_pb2_grpc, plugin_pb2, provider_pb2, provider_pb2_grpc

_NO_LIMIT = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_metadata_size", 64 * 2**20),  # the properties of a half-made object travel in the trailers
)


async def serve(register: Callable[[grpc.aio.Server], None]) -> None:
    """Serve on a free port of 127.0.0.1, print the port as the engine expects it, run until stopped.

    ``register`` adds the servicers. Message sizes are unlimited. Returns on SIGTERM; on SIGINT, with which
    the engine ends a plugin (a plugin has a process group of its own, so the user's Ctrl-C does not reach
    it); and within 2 s after the parent process has exited.
    """
    server = grpc.aio.server(options=_NO_LIMIT)
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    parent = os.getppid()
    stop = _stop_on_signals(asyncio.get_running_loop())
    await server.start()
    print(port, flush=True)
    while not stop.is_set() and os.getppid() == parent:
        try:
            await asyncio.wait_for(stop.wait(), 1)
        except TimeoutError:
            continue
    await server.stop(grace=1)


def _stop_on_signals(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """An event that SIGINT and SIGTERM set.

    Not with the loop's own handlers: they are gone once the loop is closed, and a signal during shutdown
    would print a KeyboardInterrupt, which the engine shows as output of the program.
    """
    stop = asyncio.Event()

    def end(signum: int, frame: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: shutdown has begun
            loop.call_soon_threadsafe(stop.set)

    for handled in (signal.SIGINT, signal.SIGTERM):
        signal.signal(handled, end)
    return stop


async def serve_provider(build: Callable[[Engine], ResourceProvider]) -> None:
    """Serve what ``build`` returns; the engine passes its own address as the last argument."""
    arguments = reversed(sys.argv[1:])
    address = next((item for item in arguments if ":" in item and not item.startswith("-")), None)
    channel = grpc.aio.insecure_channel(address) if address else None
    provider = build(Engine(engine_pb2_grpc.EngineStub(channel) if channel else None, address or ""))
    await serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server))
    await provider.close()
    if channel:
        await channel.close()


class ResourceProvider(provider_pb2_grpc.ResourceProviderServicer):
    """A provider with one handler per resource type; subclasses define ``name``, ``version`` and `handler`.

    Handlers get secrets as `Secret` and outputs as plain values; in a preview, create and update are called
    with ``call.preview``.
    """

    name: str = ""
    version: str = "0.0.0"

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.cancelled = asyncio.Event()

    # Defined by subclasses.

    def handler(self, token: str) -> Handler:
        """The handler of a token like ``kubernetes:core/v1:Pod``; `OperationError` for an unknown one."""
        raise NotImplementedError

    async def check_config(self, olds: Properties, news: Properties) -> CheckResult:
        return CheckResult(news)

    async def diff_config(self, olds: Properties, news: Properties) -> DiffResult:
        return DiffResult(detailed=False)

    async def configure(self, config: Properties) -> None:
        """Take the configuration (plain values, secrets revealed by the subclass as it needs them)."""

    async def invoke(self, token: str, args: Properties) -> Properties:
        raise OperationError(f"{token}: the {self.name} provider has no functions")

    def schema(self) -> Properties:
        return {"name": self.name, "version": self.version, "resources": {}}

    async def close(self) -> None:
        """Release what `configure` opened."""

    # The protocol. Names are the service's.

    @with_grpc_status
    async def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True)

    @with_grpc_status
    async def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version=self.version)

    @with_grpc_status
    async def GetSchema(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.GetSchemaResponse(schema=json.dumps(self.schema()))

    @with_grpc_status
    async def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return check_response(await self.check_config(from_struct(request.olds), from_struct(request.news)))

    @with_grpc_status
    async def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Compares with the old inputs if the engine sends them, else with the old outputs."""
        olds = request.old_inputs if request.old_inputs.fields else request.olds
        return diff_response(await self.diff_config(from_struct(olds), from_struct(request.news)))

    @with_grpc_status
    async def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self.configure(
            from_struct(request.args) if request.HasField("args") else dict(request.variables)
        )
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    @with_grpc_status
    async def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.cancelled.set()
        return empty_pb2.Empty()

    @with_grpc_status
    async def Invoke(self, request: Any, context: Any) -> Any:  # noqa: N802
        result = await self.invoke(request.tok, from_struct(request.args))
        return provider_pb2.InvokeResponse(**{"return": to_struct(result)})  # type: ignore[arg-type]  # a keyword

    @with_grpc_status
    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        result = await self.handler(request.type).check(
            self._call(request), from_struct(request.olds), from_struct(request.news)
        )
        return check_response(result)

    @with_grpc_status
    async def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802
        result = await self.handler(request.type).diff(
            self._call(request),
            request.id,
            from_struct(request.old_inputs),
            from_struct(request.olds),
            from_struct(request.news),
        )
        return diff_response(result)

    @with_grpc_status
    async def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        id, outputs = await self.handler(request.type).create(
            self._call(request), from_struct(request.properties)
        )
        return provider_pb2.CreateResponse(id=id, properties=to_struct(outputs))

    @with_grpc_status
    async def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        """An empty id in the response means that the object is gone."""
        result = await self.handler(request.type).read(
            self._call(request), request.id, from_struct(request.inputs), from_struct(request.properties)
        )
        if result is None:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(
            id=result.id, properties=to_struct(result.properties), inputs=to_struct(result.inputs)
        )

    @with_grpc_status
    async def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        outputs = await self.handler(request.type).update(
            self._call(request),
            request.id,
            from_struct(request.old_inputs),
            from_struct(request.olds),
            from_struct(request.news),
        )
        return provider_pb2.UpdateResponse(properties=to_struct(outputs))

    @with_grpc_status
    async def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self.handler(request.type).delete(
            self._call(request), request.id, from_struct(request.old_inputs), from_struct(request.properties)
        )
        return empty_pb2.Empty()

    def _call(self, request: Any) -> Call:
        preview, timeout = getattr(request, "preview", False), getattr(request, "timeout", 0.0) or None
        resource = (request.urn, request.type, request.name)
        return Call(*resource, self.engine, self.cancelled, preview=preview, timeout=timeout)
