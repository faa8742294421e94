"""What is done to one release: install, upgrade, roll back, uninstall, and looking at it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.plugins.handler import Call
from gpuform.plugins.kubernetes import release_history as history
from gpuform.plugins.kubernetes.client import Client
from gpuform.plugins.kubernetes.release_chart import locate
from gpuform.plugins.kubernetes.release_check import TIMEOUT_S, rendering_flags, resource_names
from gpuform.plugins.kubernetes.release_helm import Helm
from gpuform.plugins.kubernetes.release_history import Revision
from gpuform.plugins.kubernetes.release_values import merged

_SWITCHES = {  # input: flag, for install and upgrade alike
    "disableOpenapiValidation": "--disable-openapi-validation",
    "takeOwnership": "--take-ownership",
}
_INSTALL = {"replace": "--replace", "skipCrds": "--skip-crds", "createNamespace": "--create-namespace"}
_UPGRADE = {
    "forceUpdate": "--force",
    "cleanupOnFail": "--cleanup-on-fail",
    "recreatePods": "--recreate-pods",
}


@dataclass(frozen=True)
class Live:
    """A release as helm has it stored."""

    chart: str
    version: str
    app_version: str
    name: str
    namespace: str
    revision: int
    status: str
    values: dict[str, Any]
    manifest: str

    def outputs(self) -> dict[str, Any]:
        """The outputs of the resource that follow from it."""
        status = {
            "appVersion": self.app_version,
            "chart": self.chart,
            "name": self.name,
            "namespace": self.namespace,
            "revision": self.revision,
            "status": self.status,
            "version": self.version,
        }
        return {"status": status, "resourceNames": resource_names(self.manifest), "version": self.version}


@dataclass(frozen=True)
class Target:
    """One release and what is to be done with it: ``inputs`` are plain values, no message shows ``secrets``.

    Every method raises `HelmError` with helm's reason.
    """

    helm: Helm
    client: Client
    call: Call
    inputs: Mapping[str, Any]
    secrets: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The release's name."""
        return str(self.inputs["name"])

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.inputs["namespace"])

    @property
    def id(self) -> str:
        """Its id in the engine's state: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def awaited(self) -> bool:
        """Whether helm waits until everything is ready; ``atomic`` cannot do without."""
        return bool(self.inputs.get("atomic") or not self.inputs.get("skipAwait"))

    @property
    def timeout_s(self) -> int:
        """Bound of one helm operation, seconds."""
        return int(self.call.timeout or self.inputs.get("timeout") or TIMEOUT_S)

    async def history(self) -> list[Revision]:
        """Every revision that helm keeps, oldest first; none is an empty list."""
        answer = await self.client.get(
            f"/api/v1/namespaces/{self.namespace}/secrets", {"labelSelector": f"owner=helm,name={self.name}"}
        )
        return sorted(
            (Revision.of(item["metadata"]) for item in answer["items"]), key=lambda item: item.number
        )

    async def live(self) -> Live:
        """The newest revision."""
        place = ("--namespace", self.namespace, "--output", "json")
        release = json.loads(await self._helm("status", self.name, *place))
        about = json.loads(await self._helm("get", "metadata", self.name, *place))
        return Live(
            chart=about["chart"],
            version=about["version"],
            app_version=about.get("appVersion") or "",
            name=release["name"],
            namespace=release["namespace"],
            revision=release["version"],
            status=release["info"]["status"],
            values=release.get("config") or {},
            manifest=release.get("manifest") or "",
        )

    async def install(self) -> None:
        """Install; a failure leaves the release there, with the status ``failed``."""
        flags = [*self._flags(_INSTALL), "--labels", history.labels(self.call.urn, ())]
        flags += ["--no-hooks"] if self.inputs.get("disableWebhooks") else []
        await self._apply("install", flags)

    async def upgrade(self, revisions: list[Revision]) -> None:
        """Upgrade to the inputs' values, the chart's own for what they leave out unless ``reuseValues``."""
        flags = [*self._flags(_UPGRADE), "--labels", history.labels(self.call.urn, revisions)]
        flags += ["--no-hooks"] if self.inputs.get("disableCRDHooks") else []
        if self.inputs.get("reuseValues") and not self.inputs.get("resetValues"):
            flags += ["--reuse-values"]
        else:
            flags += ["--reset-values"]  # helm's own default reuses the old values where none are given
        if self.inputs.get("maxHistory") is not None:
            flags += ["--history-max", str(self.inputs["maxHistory"])]
        await self._apply("upgrade", flags)

    async def rollback(self, revision: int, wait: bool) -> None:
        """Go back to ``revision``, and wait for it to be ready if asked to."""
        flags = ["--wait", "--cleanup-on-fail"] if wait else []
        await self._helm(
            *("rollback", self.name, str(revision), "--namespace", self.namespace, *self._timeout(), *flags),
            stoppable=False,
        )

    async def uninstall(self, wait: bool = True) -> None:
        """Uninstall and forget; gone already is fine."""
        flags = ["--wait"] if wait else []
        await self._helm(
            *(
                "uninstall",
                self.name,
                "--namespace",
                self.namespace,
                "--ignore-not-found",
                *self._timeout(),
                *flags,
            ),
            stoppable=False,
        )

    async def _apply(self, verb: str, flags: list[str]) -> None:
        chart, _ = locate(self.inputs)
        await self.helm.run(
            *(verb, self.name, "--namespace", self.namespace, "--output", "json", *self._timeout(), *flags),
            chart=chart,
            values=merged(self.inputs),
            cancelled=self.call.cancelled,
            secrets=self.secrets,
        )

    def _flags(self, switches: Mapping[str, str]) -> list[str]:
        flags = [flag for key, flag in {**_SWITCHES, **switches}.items() if self.inputs.get(key)]
        flags += rendering_flags(self.inputs)
        if self.awaited:
            flags += ["--wait", *(["--wait-for-jobs"] if self.inputs.get("waitForJobs") else [])]
        if self.inputs.get("description"):
            flags += ["--description", str(self.inputs["description"])]
        return flags

    def _timeout(self) -> list[str]:
        return ["--timeout", f"{self.timeout_s}s"]

    async def _helm(self, *args: str, stoppable: bool = True) -> str:
        cancelled = self.call.cancelled if stoppable else None
        return await self.helm.run(*args, cancelled=cancelled, secrets=self.secrets)
