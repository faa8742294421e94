"""The language host's side of the engine's LanguageRuntime protocol."""

# ruff: noqa: N802 - the names are the service's
from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from google.protobuf.json_format import MessageToDict

from gpuform.provider.protocol import language_pb2, language_pb2_grpc, plugin_pb2
from infra.versions import PULUMI

from .interpreter import Interpreter, InterpreterError, resolve
from .process import Children, Output

_RUNNER = str(Path(__file__).with_name("runner.py"))
EXIT_SHOWN = 32  # runner.py's exit code for a failure that the user has seen


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Runs programs and plugins for one engine; ``engine`` is the engine's own gRPC address.

    Code generation, packing and linking of SDKs are left to the official host; they return UNIMPLEMENTED.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._children = Children()
        self._ending: asyncio.Task[None] | None = None

    async def Handshake(self, request: Any, context: Any) -> Any:
        """The engine's address in the handshake takes precedence over the command line."""
        self._engine = request.engine_address or self._engine
        return language_pb2.LanguageHandshakeResponse()

    async def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version=PULUMI)

    async def GetRequiredPackages(self, request: Any, context: Any) -> Any:
        """Empty, because an installed package need not be used by the program.

        An SDK sends name, version and server of its plugin with every request, and the engine gets the plugin
        then, even in a preview. The official host lists the plugin of every installed SDK, so that a program
        on an existing cluster would first download that of AWS.
        """
        return language_pb2.GetRequiredPackagesResponse()

    async def Run(self, request: Any, context: Any) -> Any:
        """Run the program to its end; it writes to this host's stdout and stderr, which the engine logs."""
        try:
            interpreter = resolve(Path(request.info.root_directory), _options(request.info))
        except InterpreterError as error:
            return language_pb2.RunResponse(error=str(error))
        code = await self._children.run(
            [str(interpreter.executable), "-u", _RUNNER],
            cwd=request.pwd or request.info.program_directory,
            env=interpreter.process_environment(os.environ),
            request=json.dumps(self._program_request(request)).encode(),
        )
        if code == EXIT_SHOWN or self._ending is not None:
            return language_pb2.RunResponse(bail=True)
        if code != 0:
            return language_pb2.RunResponse(
                error=f"Program exited with code {code}"
                if code > 0
                else f"Program was ended by signal {-code}"
            )
        return language_pb2.RunResponse()

    def _program_request(self, request: Any) -> dict[str, Any]:
        info = request.info
        return {
            "program": str((Path(info.program_directory) / info.entry_point).resolve()),
            "args": list(request.args),
            "pwd": request.pwd or info.program_directory,
            "config": dict(request.config),
            "secret_keys": list(request.configSecretKeys),
            "settings": {
                "monitor": request.monitor_address,
                "engine": self._engine,
                "project": request.project,
                "stack": request.stack,
                "parallel": request.parallel,
                "dry_run": request.dryRun,
                "organization": request.organization,
                "root_directory": info.root_directory,
            },
        }

    async def RunPlugin(self, request: Any, context: Any) -> AsyncIterator[Any]:
        interpreter = await _interpreter(request.info, context)
        folder = request.info.program_directory
        command = [str(interpreter.executable), "-u", _RUNNER, request.kind, folder, *request.args]
        env = dict(entry.split("=", 1) for entry in request.env if "=" in entry)
        async for output in self._children.stream(
            command, cwd=request.pwd or folder, env=interpreter.process_environment(env)
        ):
            yield _response(output)

    async def About(self, request: Any, context: Any) -> Any:
        interpreter = await _interpreter(request.info, context)
        version = (
            ".".join(str(part) for part in sys.version_info[:3]) if interpreter.environment is None else ""
        )
        return language_pb2.AboutResponse(executable=str(interpreter.executable), version=version)

    async def InstallDependencies(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Nothing: the environment is the user's; a plugin that lacks a package says so when it runs."""
        await _interpreter(request.info, context)
        empty: tuple[Any, ...] = ()
        for output in empty:
            yield output

    async def _refuse(self, request: Any, context: Any) -> None:
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED,
            "the stand-in language host has no code generation; install the official one",
        )

    GetRequiredPlugins = GetProgramDependencies = Template = RuntimeOptionsPrompts = _refuse
    Link = Pack = GenerateProgram = GenerateProject = GeneratePackage = _refuse

    async def Cancel(self, request: Any, context: Any) -> Any:
        """End the child processes, then this host; called on Ctrl-C and at the end of every run."""
        self._ending = asyncio.create_task(self._end())
        return empty_pb2.Empty()

    async def _end(self) -> None:
        await self._children.end()
        os.kill(os.getpid(), signal.SIGTERM)  # `serve` finishes open calls and returns


def _response(output: Output) -> Any:
    if output.exit_code is not None:
        return language_pb2.RunPluginResponse(exitcode=output.exit_code)
    if output.stderr:
        return language_pb2.RunPluginResponse(stderr=output.data)
    return language_pb2.RunPluginResponse(stdout=output.data)


def _options(info: Any) -> Mapping[str, object]:
    options: dict[str, object] = MessageToDict(info.options)
    return options


async def _interpreter(info: Any, context: Any) -> Interpreter:
    try:
        return await asyncio.to_thread(resolve, Path(info.root_directory), _options(info))
    except InterpreterError as error:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        raise  # abort raises; this tells the type checker so
