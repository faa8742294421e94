"""A provider process over gRPC, as the engine sees it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2


class Refused(Exception):
    """The provider answered with an error; ``failed`` is what it kept of a half-made object."""

    def __init__(self, message: str, failed: dict[str, Any] | None) -> None:
        super().__init__(message)
        self.failed = failed


@dataclass
class Provider:
    """Calls by name with JSON messages, as the engine's debug log writes them."""

    stub: provider_pb2_grpc.ResourceProviderStub
    process: subprocess.Popen[bytes]

    def __call__(self, method: str, request: Mapping[str, Any]) -> dict[str, Any]:
        call = getattr(self.stub, method)
        message = json_format.ParseDict(request, _REQUESTS[method]())
        try:
            answer = call(message, timeout=120)
        except grpc.RpcError as error:
            raise Refused(error.details(), _detail(error)) from None
        result: dict[str, Any] = json_format.MessageToDict(answer)
        return result

    def configure(self, **config: Any) -> dict[str, Any]:
        return self("Configure", {"args": config, "acceptSecrets": True, "acceptResources": True})


_REQUESTS: dict[str, Callable[[], Any]] = {
    "GetPluginInfo": __import__("google.protobuf.empty_pb2", fromlist=["Empty"]).Empty,
    "Cancel": __import__("google.protobuf.empty_pb2", fromlist=["Empty"]).Empty,
    "GetSchema": provider_pb2.GetSchemaRequest,
    "Handshake": provider_pb2.ProviderHandshakeRequest,
    "CheckConfig": provider_pb2.CheckRequest,
    "DiffConfig": provider_pb2.DiffRequest,
    "Configure": provider_pb2.ConfigureRequest,
    "Check": provider_pb2.CheckRequest,
    "Diff": provider_pb2.DiffRequest,
    "Create": provider_pb2.CreateRequest,
    "Read": provider_pb2.ReadRequest,
    "Update": provider_pb2.UpdateRequest,
    "Delete": provider_pb2.DeleteRequest,
    "Invoke": provider_pb2.InvokeRequest,
}


def _detail(error: Any) -> dict[str, Any] | None:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(value)
            failed = provider_pb2.ErrorResourceInitFailed()
            if status.details and status.details[0].Unpack(failed):
                found: dict[str, Any] = json_format.MessageToDict(failed)
                return found
    return None


@pytest.fixture
def start_provider() -> Iterator[Callable[..., Provider]]:
    """Starts providers with given environment variables; ends them with the test."""
    started: list[tuple[subprocess.Popen[bytes], grpc.Channel]] = []

    def start(**environment: str) -> Provider:
        import os

        process = subprocess.Popen(
            [sys.executable, "-m", "gpuform.plugins.kubernetes"],
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        assert process.stdout
        port = int(process.stdout.readline())
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_metadata_size", 1 << 24)]
        channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
        started.append((process, channel))
        return Provider(provider_pb2_grpc.ResourceProviderStub(channel), process)

    yield start
    for process, channel in started:
        channel.close()
        process.terminate()
        assert process.wait(10) == 0


@pytest.fixture
def provider(start_provider: Callable[..., Provider], control_plane: Any) -> Provider:
    """A provider of the embedded control plane."""
    found = start_provider()
    found.configure(kubeconfig=str(control_plane.kubeconfig))
    return found


@pytest.fixture(scope="session")
def reference() -> Path:
    """The material that lies beside the checkout."""
    folder = Path(__file__).resolve().parents[4] / "shared" / "reference"
    if not folder.is_dir():
        pytest.skip("../shared/reference is not there: the recorded answers of the official provider")
    return folder
