"""A provider process over gRPC, as the engine sees it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2, json_format
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from gpuform.engine import Engine, EngineFailure, Result, engine_env
from gpuform.paths import Paths


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
    "GetPluginInfo": empty_pb2.Empty,
    "Cancel": empty_pb2.Empty,
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


@dataclass
class Stack:
    """A small project whose resources go to the embedded control plane, run by the real engine."""

    engine: Engine
    folder: Path
    kubeconfig: Path
    namespace: str
    kubectl: Callable[..., str]
    toolchain: Any

    def program(self, source: str, kubeconfig: str | None = None) -> None:
        """Give the program; `namespace` names one that exists, `opts` the provider of the cluster."""
        head = HEAD.format(kubeconfig=kubeconfig or str(self.kubeconfig), namespace=self.namespace)
        (self.folder / "infra" / "__main__.py").write_text(head + textwrap.dedent(source))

    def up(self, source: str) -> Result:
        self.program(source)
        return self.engine.up()

    def preview(self, source: str) -> Result:
        self.program(source)
        return self.engine.preview()

    def failure(self, source: str) -> str:
        """What a failing up says."""
        with pytest.raises(EngineFailure) as caught:
            self.up(source)
        return "\n".join(caught.value.result.errors)

    def preview_failure(self, source: str) -> str:
        with pytest.raises(EngineFailure) as caught:
            self.preview(source)
        return "\n".join(caught.value.result.errors)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.kubectl("get", kind, name, "-n", self.namespace, "-o", "json")
        )
        return found

    def forget(self, name: str) -> None:
        """Take a resource out of the engine's state, as if the engine had been killed before it noted it."""
        urns = [r["urn"] for r in self.engine.export()["deployment"]["resources"]]
        urn = next(urn for urn in urns if urn.endswith(f"::{name}"))
        paths = Paths(self.folder, self.folder / ".gpuform", self.folder.parent / "cache")
        done = subprocess.run(
            [str(paths.shims / "pulumi"), "state", "delete", urn, "--stack", "local", "--yes"],
            env={**os.environ, **engine_env(paths, self.toolchain)},
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    def state(self) -> str:
        return json.dumps(self.engine.export())


HEAD = """
import pulumi
from pulumi import Output, ResourceOptions
import pulumi_kubernetes as k8s
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, NodePatch, Pod, Secret, Service
from pulumi_kubernetes.apps.v1 import Deployment
from pulumi_kubernetes.batch.v1 import Job
from pulumi_kubernetes.node.v1 import RuntimeClass
from pulumi_kubernetes.scheduling.v1 import PriorityClass
from pulumi_kubernetes.apiextensions import CustomResource
namespace = {namespace!r}
provider = k8s.Provider("cluster", kubeconfig={kubeconfig!r})
opts = ResourceOptions(provider=provider)
"""


@pytest.fixture
def stack(tmp_path: Path, control_plane: Any, request: pytest.FixtureRequest) -> Iterator[Stack]:
    root = tmp_path / "checkout"
    (root / "infra").mkdir(parents=True)
    (root / "Pulumi.yaml").write_text("name: tried\nruntime: python\nmain: infra/\n")
    (root / "Pulumi.local.yaml").write_text("config: {}\n")
    paths = Paths(root, root / ".gpuform", tmp_path / "cache")
    digest = hashlib.sha256(request.node.name.encode()).hexdigest()[:8]
    namespace = f"engine-{digest}"
    control_plane.kubectl("create", "namespace", namespace)
    engine = Engine(paths, control_plane.toolchain, say=lambda line: None)
    yield Stack(
        engine, root, control_plane.kubeconfig, namespace, control_plane.kubectl, control_plane.toolchain
    )
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def node(control_plane: Any) -> Iterator[str]:
    """A simulated node for pods that ask for nothing special."""
    name = "plain-0"
    manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}},
    }
    control_plane.kubectl("apply", "-f", "-", input=json.dumps(manifest))
    control_plane.kubectl("wait", "--for=condition=Ready", f"node/{name}", "--timeout=30s")
    yield name
    control_plane.kubectl("delete", "node", name)
