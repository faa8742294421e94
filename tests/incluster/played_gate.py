"""The readiness gate where pods run no code: its own program, out of the cluster, with its own account."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

NAMESPACE = "gpu-operator"
DEPLOYMENT = "readiness-gate"


class Kubectl(Protocol):
    def __call__(self, *args: str, input: str | None = None) -> str: ...


class PlayedGate:
    """What the gate's pod would be: the program from the ConfigMap that the Deployment mounts, its command,
    and a token of its ServiceAccount, so that it may do here what it may do there.
    """

    def __init__(self, kubectl: Kubectl, folder: Path) -> None:
        self.kubectl = kubectl
        self.folder = folder
        self.log = folder / "log"
        self.server = ""

    def read(self, *what: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", *what, "-n", NAMESPACE, "-o", "json"))
        return found

    def start(self, server: str = "", every: float = 0.2) -> subprocess.Popen[bytes]:
        """Run it as the Deployment says, with what a pod is given; another ``server`` stands in between."""
        spec = self.read("deployment", DEPLOYMENT)["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        account = self._account(spec["serviceAccountName"])
        (volume,) = spec["volumes"]
        (mount,) = container["volumeMounts"]
        for name, text in self.read("configmap", volume["configMap"]["name"])["data"].items():
            (self.folder / name).write_text(text)
        command = [part.replace(mount["mountPath"] + "/", f"{self.folder}/") for part in container["command"]]
        assert command[0] == "python3"
        command[0] = sys.executable
        url = urlsplit(server or self.server)
        env = {"KUBERNETES_SERVICE_HOST": url.hostname or "", "KUBERNETES_SERVICE_PORT": str(url.port)}
        extra = ["--every", str(every), "--account", str(account)]
        with self.log.open("ab") as log:
            return subprocess.Popen([*command, *extra], env=os.environ | env, stdout=log, stderr=log)

    def _account(self, name: str) -> Path:
        view = json.loads(self.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
        cluster = view["clusters"][0]["cluster"]
        self.server = cluster["server"]
        account = self.folder / "account"
        account.mkdir(exist_ok=True)
        (account / "namespace").write_text(NAMESPACE)
        (account / "token").write_text(self.kubectl("create", "token", name, "-n", NAMESPACE))
        data = cluster.get("certificate-authority-data")
        authority = base64.b64decode(data) if data else Path(cluster["certificate-authority"]).read_bytes()
        (account / "ca.crt").write_bytes(authority)
        return account

    @contextmanager
    def running(self, server: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """It runs for as long as the context lasts, and must still run at its end."""
        process = self.start(server)
        try:
            yield process
            assert process.poll() is None, self.log.read_text()
        finally:
            end(process)

    @contextmanager
    def following(self) -> Iterator[None]:
        """It runs while its Deployment is there, anew when that has changed, as a kubelet would see to it."""
        over = threading.Event()
        keeper = threading.Thread(target=self._follow, args=(over,), daemon=True)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join(timeout=60)

    def _follow(self, over: threading.Event) -> None:
        process, template = None, None
        try:
            while not over.wait(0.5):
                try:
                    items = self.read("deployment", "--field-selector", f"metadata.name={DEPLOYMENT}")[
                        "items"
                    ]
                    wanted = items[0]["spec"]["template"] if items else None
                    if wanted == template and (process is None or process.poll() is None):
                        continue
                    if process:
                        end(process)
                    process = self.start() if wanted else None
                    template = wanted
                except AssertionError as error:  # kubectl failed: it goes away, or comes up
                    with self.log.open("a") as log:
                        log.write(f"{error}\n")
        finally:
            if process:
                end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """As a kubelet ends a pod."""
    process.terminate()
    process.wait(timeout=15)
