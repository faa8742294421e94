"""A release handler on the shared control plane, a tiny chart, and what the handler asks of helm."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuform.plugins.handler import Call
from gpuform.plugins.kubernetes.client import Client
from gpuform.plugins.kubernetes.discovery import Discovery
from gpuform.plugins.kubernetes.kubeconfig import resolve
from gpuform.plugins.kubernetes.release import TOKEN, ReleaseHandler
from tests.plugins.shown import Log

_names = itertools.count()

CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-cm"}
data: {text: {{ .Values.text | quote }}}
"""
NEVER_READY = """\
{{- if .Values.stuck }}
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}-stuck"}
spec:
  selector: {matchLabels: {app: stuck}}
  template:
    metadata: {labels: {app: stuck}}
    spec:
      nodeSelector: {no-such-node: "true"}
      containers: [{name: c, image: x}]
{{- end }}
"""


@dataclass
class Releases:
    """One release, driven as the engine would: check, then the operation, each with its own client."""

    kubeconfig: str
    kubectl: Any
    namespace: str
    chart: Path
    log: Log = field(default_factory=Log)
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.namespace}/t"

    def call(self, **more: Any) -> Call:
        urn = f"urn:pulumi:dev::test::{TOKEN}::{self.namespace}"
        return Call(urn, TOKEN, "t", self.log, asyncio.Event(), **more)

    def ask(self, verb: str, *args: Any, **more: Any) -> Any:
        async def run() -> Any:
            client = Client(resolve({"kubeconfig": self.kubeconfig}))
            try:
                handler = ReleaseHandler(client, Discovery(client))
                return await getattr(handler, verb)(self.call(**more), *args)
            finally:
                await client.close()

        return asyncio.run(run())

    def checked(self, **inputs: Any) -> dict[str, Any]:
        news = {"chart": str(self.chart), "name": "t", "namespace": self.namespace, "timeout": 4, **inputs}
        answer = self.ask("check", self.inputs, news)
        assert not answer.failures
        return answer.inputs

    def create(self, **inputs: Any) -> dict[str, Any]:
        news = self.checked(**inputs)
        _, self.outputs = self.ask("create", news)
        self.inputs = news
        return self.outputs

    def update(self, **inputs: Any) -> dict[str, Any]:
        news = self.checked(**inputs)
        self.outputs = self.ask("update", self.id, self.inputs, self.outputs, news)
        self.inputs = news
        return self.outputs

    def diff(self, **inputs: Any) -> dict[str, Any]:
        return dict(self.ask("diff", self.id, self.inputs, self.outputs, self.checked(**inputs)).changes)

    def text(self) -> str:
        return self.kubectl("get", "cm", "-n", self.namespace, "t-cm", "-o", "jsonpath={.data.text}")

    def revisions(self) -> list[tuple[int, str]]:
        found = json.loads(
            self.kubectl("get", "secret", "-n", self.namespace, "-l", "owner=helm,name=t", "-o", "json")
        )
        labels = [item["metadata"]["labels"] for item in found["items"]]
        return sorted((int(item["version"]), item["status"]) for item in labels)

    def mark(self, revision: int, status: str, **labels: str) -> None:
        """Make a revision look like what helm leaves when it is killed: the status in label and payload."""
        import base64
        import gzip

        name = f"sh.helm.release.v1.t.v{revision}"
        secret = json.loads(self.kubectl("get", "secret", "-n", self.namespace, name, "-o", "json"))
        release = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
        release["info"]["status"] = status
        packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode())))
        secret["data"]["release"] = packed.decode()
        secret["metadata"]["labels"] |= {"status": status, **labels}
        self.kubectl("replace", "-f", "-", input=json.dumps(secret))


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: tiny\nversion: 0.1.0\nappVersion: '1.0'\n")
    (folder / "values.yaml").write_text("text: default\nstuck: false\n")
    (folder / "templates" / "cm.yaml").write_text(CONFIG)
    (folder / "templates" / "stuck.yaml").write_text(NEVER_READY)
    return folder


@pytest.fixture
def releases(
    control_plane: Any, kubectl: Any, chart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Releases:
    monkeypatch.setenv("GPUFORM_HELM", str(control_plane.toolchain.path("helm")))
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    namespace = f"release-{next(_names)}"
    kubectl("create", "namespace", namespace)
    return Releases(control_plane.kubeconfig.read_text(), kubectl, namespace, chart)
