"""The readiness gate where pods run no code: its own program, beside the cluster, with its own account.

It is what the gate's pod would be: the program from the ConfigMap that the Deployment mounts, its command,
and a token of its ServiceAccount, so that it may do here what it may do there. Python is this one, not the
image's.
"""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import yaml

from gpuform.errors import Failure
from gpuform.paths import Paths
from gpuform.rehearse.children import Children, end
from gpuform.rehearse.following import Following
from gpuform.simulator.api import Api
from infra.plan.readiness_gate import NAME
from infra.plan.sharing import NAMESPACE

EVERY_S = 0.2  # between two looks of the gate; five seconds in its pod
TOKEN_S = 6 * 3600
_DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
_CORE = f"/api/v1/namespaces/{NAMESPACE}"

Json = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """What the Deployment's pod would be given; ``files`` by the path in its container."""

    command: tuple[str, ...]
    account: str
    mounted: str
    files: tuple[tuple[str, str], ...]


class Gate:
    """The gate of one cluster; what it says is in ``log``, in its folder."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        """Looks at nothing yet."""
        self._kubeconfig = kubeconfig
        self._children = Children(folder)
        self.log = self._children.folder / "log"

    def start(self, server: str = "", every: float = EVERY_S) -> subprocess.Popen[bytes]:
        """Run it as the Deployment says; another ``server`` stands in between. Raises Failure without one.

        It ends with the calling thread at the latest.
        """
        pod = asyncio.run(self._once())
        if pod is None:
            raise Failure(f"deployment {NAME}", "is not in the cluster", "run `up` first")
        return self._run(pod, server, every)

    @contextmanager
    def running(self, server: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """It runs for as long as the context lasts, and must still run at its end, else Failure."""
        process = self.start(server)
        try:
            yield process
            if process.poll() is not None:
                raise Failure("the readiness gate", f"has ended: {self.log.read_text()}", f"see {self.log}")
        finally:
            end(process)

    @contextmanager
    def following(self) -> Iterator[Following[Pod]]:
        """It runs while its Deployment is there, anew when that has changed, as a kubelet would see to it."""
        self._children.end_left()
        try:
            with Following(self._kubeconfig, _wanted, self._run, self.log) as following:
                yield following
        finally:
            self._children.end_left()

    async def _once(self) -> Pod | None:
        api = Api(self._kubeconfig)
        try:
            return await _wanted(api)
        finally:
            await api.close()

    def _run(self, pod: Pod, server: str = "", every: float = EVERY_S) -> subprocess.Popen[bytes]:
        folder = self._children.folder
        for name, text in pod.files:
            (folder / name).write_text(text, encoding="utf-8")
        account, own = self._account(pod.account)
        url = urlsplit(server or own)
        env = {"KUBERNETES_SERVICE_HOST": url.hostname or "", "KUBERNETES_SERVICE_PORT": str(url.port)}
        first, *words = (word.replace(f"{pod.mounted}/", f"{folder}/") for word in pod.command)
        if first != "python3":
            raise Failure(
                f"deployment {NAME}", f"runs {first}, not python3", "see infra/plan/readiness_gate.py"
            )
        command = [sys.executable, *words, "--every", str(every), "--account", str(account)]
        return self._children.start(command, env, self.log)

    def _account(self, name: str) -> tuple[Path, str]:
        """The folder that a pod finds its account in, with a real token; and where the API server is."""
        config = yaml.safe_load(self._kubeconfig.read_text(encoding="utf-8"))
        cluster: Json = config["clusters"][0]["cluster"]
        account = self._children.folder / "account"
        account.mkdir(exist_ok=True, mode=0o700)
        (account / "namespace").write_text(NAMESPACE)
        token = account / "token"
        token.touch(mode=0o600)
        token.write_text(asyncio.run(self._token(name)))
        (account / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        return account, cluster["server"]

    async def _token(self, account: str) -> str:
        api = Api(self._kubeconfig)
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_S},
        }
        try:
            answer = await api.create(f"{_CORE}/serviceaccounts/{account}/token", request)
        finally:
            await api.close()
        token: str = answer["status"]["token"]
        return token


@contextmanager
def readiness_gate(paths: Paths, tools: object, folder: Path) -> Iterator[Following[Pod]]:
    """The gate of the control plane of ``paths``, while its Deployment is there; ``folder`` is its own.

    ``tools`` is not asked for anything: the gate needs this very Python and nothing else.
    """
    with Gate(paths.kubeconfig, folder).following() as following:
        yield following


async def _wanted(api: Api) -> Pod | None:
    """What the Deployment wants to run; None where there is none."""
    try:
        async for items, _ in api.pages(_DEPLOYMENTS, {"fieldSelector": f"metadata.name={NAME}"}):
            if not items:
                return None
            spec = items[0]["spec"]["template"]["spec"]
            (container,) = spec["containers"]
            (volume,) = spec["volumes"]
            (mount,) = container["volumeMounts"]
            files = await _data(api, volume["configMap"]["name"])
            return Pod(
                command=tuple(container["command"]),
                account=spec["serviceAccountName"],
                mounted=mount["mountPath"],
                files=tuple(sorted(files.items())),
            )
    except httpx.HTTPStatusError as error:
        if error.response.status_code != httpx.codes.NOT_FOUND:
            raise
    return None


async def _data(api: Api, name: str) -> dict[str, str]:
    query = {"fieldSelector": f"metadata.name={name}"}
    async for items, _ in api.pages(f"{_CORE}/configmaps", query):
        for item in items:
            found: dict[str, str] = item["data"]
            return found
    raise Failure(f"configmap {name}", "is missing, which the readiness gate mounts", "run `up` again")
