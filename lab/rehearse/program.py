"""Runs one of our in-cluster programs beside the cluster, with its own account, since pods run no code.

It runs as in its pod: the program from the ConfigMap that the Deployment mounts, its command, and a token of
its ServiceAccount, so that it has the same permissions. Python is this interpreter, not the image's.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from gpuform.checkout.errors import Failure
from infra.plan import pool_keeper, readiness_gate
from infra.plan.sharing import NAMESPACE
from lab.rehearse.cluster import Cluster
from lab.rehearse.supervisor import Children, Supervisor, end_process

TOKEN_S = 6 * 3600

Json = dict[str, Any]


@dataclass(frozen=True)
class PodSpec:
    """What the Deployment's pod would get; ``files`` are names below ``mounted`` with their text."""

    command: tuple[str, ...]
    account: str
    mounted: str
    files: tuple[tuple[str, str], ...]


class Program:
    """The program of one cluster; its output is in the file ``log`` of its folder."""

    def __init__(
        self,
        name: str,
        title: str,
        kubeconfig: Path,
        folder: Path,
        interval_s: float,
        namespace: str = NAMESPACE,
    ) -> None:
        """Its Deployment, its name in messages, and its interval in seconds (``--every``)."""
        self._name, self._title, self._kubeconfig, self._interval_s = name, title, kubeconfig, interval_s
        self._namespace, self._core = namespace, f"/api/v1/namespaces/{namespace}"
        self._children = Children(folder)
        self.log = self._children.folder / "log"

    @contextmanager
    def running(self, server: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """Run it as the Deployment says while the context lasts; ``server`` replaces the API server's URL.

        Raises Failure without a Deployment, and if it no longer runs at the end.
        """
        with closing(Cluster(self._kubeconfig)) as cluster:
            pod = self._read_pod(cluster)
        if pod is None:
            raise Failure(f"deployment {self._name}", "is not in the cluster", "run `up` first")
        process = self._run(pod, server)
        try:
            yield process
            if process.poll() is not None:
                raise Failure(self._title, f"has ended: {self.log.read_text()}", f"see {self.log}")
        finally:
            end_process(process)

    def supervisor(self) -> Supervisor[PodSpec]:
        """Runs it while its Deployment exists, and restarts it when that has changed, as a kubelet would."""
        return Supervisor(self._kubeconfig, self._read_pod, self._run, self._children, self.log)

    def _run(self, pod: PodSpec, server: str = "") -> subprocess.Popen[bytes]:
        folder = self._children.folder
        for name, text in pod.files:
            (folder / name).write_text(text, encoding="utf-8")
        account, own_server = self._account(pod.account)
        url = urlsplit(server or own_server)
        env = {"KUBERNETES_SERVICE_HOST": url.hostname or "", "KUBERNETES_SERVICE_PORT": str(url.port)}
        executable, *arguments = (
            argument.replace(f"{pod.mounted}/", f"{folder}/") for argument in pod.command
        )
        if executable != "python3":
            fact = f"runs {executable}, not python3"
            raise Failure(f"deployment {self._name}", fact, "see its plan in infra/plan")
        command = [sys.executable, *arguments, "--every", str(self._interval_s), "--account", str(account)]
        return self._children.start(command, env, self.log)

    def _account(self, name: str) -> tuple[Path, str]:
        """Write the account's folder as in a pod, with a real token; returns it and the API server's URL."""
        config = yaml.safe_load(self._kubeconfig.read_text(encoding="utf-8"))
        cluster: Json = config["clusters"][0]["cluster"]
        account = self._children.folder / "account"
        account.mkdir(exist_ok=True, mode=0o700)
        (account / "namespace").write_text(self._namespace)
        token = account / "token"
        token.touch(mode=0o600)
        token.write_text(self._token(name))
        (account / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        return account, cluster["server"]

    def _token(self, account: str) -> str:
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_S},
        }
        with closing(Cluster(self._kubeconfig)) as cluster:
            token_request = cluster.create(f"{self._core}/serviceaccounts/{account}/token", request)
        return str(token_request["status"]["token"])

    def _read_pod(self, cluster: Cluster) -> PodSpec | None:
        path = f"/apis/apps/v1/namespaces/{self._namespace}/deployments"
        for deployment in cluster.items(path, self._name):
            spec = deployment["spec"]["template"]["spec"]
            (container,) = spec["containers"]
            (volume,) = spec["volumes"]
            (mount,) = container["volumeMounts"]
            name = volume["configMap"]["name"]
            config_maps = cluster.items(f"{self._core}/configmaps", name)
            if not config_maps:
                fact = f"is missing, but {self._title} mounts it"
                raise Failure(f"configmap {name}", fact, "run `up` again")
            return PodSpec(
                command=tuple(container["command"]),
                account=spec["serviceAccountName"],
                mounted=mount["mountPath"],
                files=tuple(sorted(config_maps[0]["data"].items())),
            )
        return None


class Gate(Program):
    """The readiness gate; it checks nodes every 0.2 s, in its pod every 5 s."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        super().__init__(readiness_gate.NAME, "the readiness gate", kubeconfig, folder, interval_s=0.2)


class Keeper(Program):
    """The pool keeper; it lists nodes every 2 s, in its pod every 30 s."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        super().__init__(pool_keeper.NAME, "the pool keeper", kubeconfig, folder, interval_s=2.0)
