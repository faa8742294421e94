"""The cluster that a provider was configured for: its client, its kinds and the provider's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.plugins.handler import Call, Properties
from gpuform.plugins.kubernetes.client import Client, Unreachable
from gpuform.plugins.kubernetes.discovery import Discovery, ResourceType
from gpuform.plugins.kubernetes.kubeconfig import Access
from gpuform.plugins.kubernetes.messages import no_kind
from gpuform.plugins.kubernetes.waiting import until_known

_KIND_SECONDS = 10.0  # how long an update waits for a kind whose definition it may be creating itself


@dataclass(frozen=True)
class Settings:
    """The provider's options that change what it does; others of the official one have no meaning here."""

    delete_unreachable: bool = False
    skip_update_unreachable: bool = False
    mutable_config_maps: bool = False
    mutable_secrets: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
        """Read them from the provider's configuration, else from the official provider's variables."""

        def on(key: str, variable: str) -> bool:
            value = config.get(key)
            text = environ.get(variable, "") if value is None else str(value)
            return text.lower() in ("true", "1")

        return cls(
            delete_unreachable=on("deleteUnreachable", "PULUMI_K8S_DELETE_UNREACHABLE"),
            skip_update_unreachable=on("skipUpdateUnreachable", "PULUMI_K8S_SKIP_UPDATE_UNREACHABLE"),
            mutable_config_maps=on("enableConfigMapMutable", "PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE"),
            mutable_secrets=on("enableSecretMutable", "PULUMI_K8S_ENABLE_SECRET_MUTABLE"),
        )


class Cluster:
    """One per provider process; shared by all its handlers."""

    def __init__(self, access: Access, settings: Settings) -> None:
        """Open nothing yet."""
        self.access = access
        self.settings = settings
        self.client = Client(access)
        self.discovery = Discovery(self.client)
        self._warned: set[str] = set()

    async def type_of(self, manifest: Mapping[str, Any], fresh: bool = False) -> ResourceType | None:
        """The resource type of a manifest, ``None`` if the server does not know it."""
        return await self.discovery.find(str(manifest["apiVersion"]), str(manifest["kind"]), fresh)

    async def awaited_type(self, call: Call, manifest: Mapping[str, Any]) -> ResourceType:
        """The same, waiting a while for a definition that is being made; `PluginError` without."""
        found = await self.type_of(manifest)
        if found is None:
            found = await until_known(call, lambda: self.type_of(manifest), _KIND_SECONDS)
        if found is None:
            raise no_kind(manifest)
        return found

    async def scoped(self, manifest: Properties) -> bool | None:
        """Whether objects of this kind live in namespaces; ``None`` when nobody can say."""
        try:
            found = await self.type_of(manifest)
        except Unreachable:
            return None
        return found.namespaced if found else None

    async def warn_once(self, call: Call, text: str) -> None:
        """Warn about something that is the same for every resource."""
        if text not in self._warned:
            self._warned.add(text)
            await call.warn(text)

    async def preview_without(self, call: Call, problem: Unreachable) -> None:
        """Say that a preview goes on without the cluster."""
        await self.warn_once(
            call, f"{problem}; the preview shows what the program says, not what the server would make of it"
        )
