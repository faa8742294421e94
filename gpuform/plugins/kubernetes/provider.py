"""The stand-in of pulumi-resource-kubernetes."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping
from typing import Any

from gpuform.plugins.base import ResourceProvider
from gpuform.plugins.handler import Change, Checked, Diffed, Engine, Handler, PluginError, Properties
from gpuform.plugins.kubernetes.cluster import Cluster, Settings
from gpuform.plugins.kubernetes.kubeconfig import Access, resolve
from gpuform.plugins.kubernetes.objects import Objects
from gpuform.plugins.kubernetes.patches import Patches
from gpuform.plugins.properties import UNKNOWN, has_unknown, reveal

RELEASE = "kubernetes:helm.sh/v3:Release"
_COMPONENTS = ("kubernetes:yaml", "kubernetes:helm.sh/", "kubernetes:kustomize")
_WHICH_CLUSTER = ("kubeconfig", "context", "cluster")


class KubernetesProvider(ResourceProvider):
    """Every kind of the API server by server-side apply, and Helm releases."""

    name = "kubernetes"
    # The SDK in use asks for its own version of the plugin; any other would be a warning in every run.
    version = importlib.metadata.version("pulumi-kubernetes")

    def __init__(self, engine: Engine) -> None:
        """Know no cluster yet."""
        super().__init__(engine)
        self._use(Access(problem="the provider is not configured"), {})

    def _use(self, access: Access, config: Mapping[str, Any]) -> None:
        self.access = access
        self.config = dict(config)
        self.cluster = Cluster(access, Settings.of(config, os.environ))
        self._objects = Objects(self.cluster)
        self._patches = Patches(self.cluster)

    async def check_config(self, olds: Properties, news: Properties) -> Checked:
        """Refuse what the stand-in cannot do rather than ignore it."""
        plain = reveal(news)
        failures = []
        if plain.get("renderYamlToDirectory"):
            failures.append(
                ("renderYamlToDirectory", "the stand-in does not render to files; use: gpuform render")
            )
        if str(plain.get("enableServerSideApply", "true")).lower() == "false":
            failures.append(
                ("enableServerSideApply", "the stand-in knows server-side apply only; leave it out")
            )
        return Checked(news, failures)

    async def diff_config(self, olds: Properties, news: Properties) -> Diffed:
        """Another cluster replaces everything; another way to the same one changes nothing."""
        before, after = reveal(olds), reveal(news)
        changed = {key: Change.UPDATE for key in _differing(before, after)}
        if before.get("clusterIdentifier") and after.get("clusterIdentifier") is UNKNOWN:
            # The engine asks what a cluster's end would mean: another cluster gets another identifier.
            return Diffed(changed, ["clusterIdentifier"], diffs=tuple(changed), detailed=False)
        if not changed or has_unknown(news):
            return Diffed(changed, diffs=tuple(changed), detailed=False)
        if before.get("clusterIdentifier") or after.get("clusterIdentifier"):
            same = before.get("clusterIdentifier") == after.get("clusterIdentifier")
            replaces = [] if same else ["clusterIdentifier"]
        else:
            same = _server(before) == _server(after)
            replaces = [] if same else [key for key in _WHICH_CLUSTER if key in changed]
        return Diffed(changed, replaces, diffs=tuple(changed), detailed=False)

    async def configure(self, config: Properties) -> None:
        """Choose the cluster; nothing is asked of it before the first resource."""
        plain = reveal(config)
        self._use(resolve(plain), plain)

    def handler(self, token: str) -> Handler:
        """Releases go to Helm, patches to `Patches`, every other kind to `Objects`."""
        if token == RELEASE:
            return self._release()
        if token.startswith(_COMPONENTS) or token.count(":") != 2:
            raise PluginError(f"{token}: the stand-in of the kubernetes provider does not have this type")
        if token.endswith("Patch"):
            return self._patches
        if token.endswith("List"):
            raise PluginError(f"{token}: declare the objects of the list one by one")
        return self._objects

    def _release(self) -> Handler:
        # Imported when a program has a release: most do without helm.
        from gpuform.plugins.kubernetes.release import ReleaseHandler

        return ReleaseHandler(self.cluster.client, self.cluster.discovery)

    async def close(self) -> None:
        """Close the connections to the cluster."""
        await self.cluster.client.close()


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    keys = sorted({*before, *after} - {"version"})
    return [key for key in keys if before.get(key) != after.get(key)]


def _server(config: Mapping[str, Any]) -> str:
    """What tells one cluster from another: its address, or why there is none."""
    access = resolve(config)
    return access.server or access.problem
