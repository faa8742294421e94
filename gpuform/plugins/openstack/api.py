"""Magnum's API for handlers: magnumclient in threads, answers as plain dicts, errors as users see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuform.errors import Failure, InputError
from gpuform.openstack.cloud import Cloud, Refused, answers
from gpuform.plugins.handler import PluginError

Live = dict[str, Any]
_HALF_S, _HALF_LOOKS = 0.3, 20


class ApiError(PluginError):
    """Magnum refused, or did not answer; ``status`` is HTTP's, 0 where there was no answer."""

    def __init__(self, failure: Failure | InputError) -> None:
        """Say what the failure says."""
        super().__init__(str(failure))
        self.status = failure.status if isinstance(failure, Refused) else 0
        self.refused = isinstance(failure, Refused) and self.status < 500


class Magnum:
    """The calls of one cloud; each names the command by which the same is asked by hand."""

    def __init__(self, cloud: Cloud) -> None:
        """Ask ``cloud``."""
        self.cloud = cloud

    async def ask(self, call: str, do: Callable[[], Any]) -> Any:
        """What ``do`` returns, run in a thread. Raises `ApiError`."""

        def run() -> Any:
            with answers(f"openstack coe {call}"):
                return do()

        try:
            return await asyncio.to_thread(run)
        except (Failure, InputError) as failure:
            raise ApiError(failure) from None

    async def find(self, call: str, do: Callable[[], Any]) -> Live | None:
        """The thing that ``do`` gets, ``None`` where there is none (404)."""
        try:
            found = await self.ask(call, do)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return _plain(found) if found is not None else None

    async def _half(self, call: str, do: Callable[[], Any]) -> Live | None:
        """As `find`, of a cluster: Magnum makes its groups after itself and deletes them before, and its API
        answers 400 to whoever asks in between, for a cluster without masters is none that it may show.
        """
        for _ in range(_HALF_LOOKS):
            try:
                return await self.find(call, do)
            except ApiError as error:
                if error.status != 400:
                    raise
                await asyncio.sleep(_HALF_S)
        return await self.find(call, do)

    # Clusters.

    async def cluster(self, key: str) -> Live | None:
        """A cluster by uuid or name. A name that several have is an `ApiError` with status 409."""
        return await self._half(f"cluster show {key}", lambda: self.cloud.magnum.clusters.get(key))

    async def create_cluster(self, body: Mapping[str, Any]) -> str:
        """Ask for a cluster; returns its uuid. It need not be there yet: the conductor makes it later."""
        made = await self.ask(
            f"cluster create {body.get('name')}", lambda: self.cloud.magnum.clusters.create(**body)
        )
        return str(made.uuid)

    async def delete_cluster(self, uuid: str) -> None:
        """Ask for its end; already gone is success."""
        await self.find(f"cluster delete {uuid}", lambda: self.cloud.magnum.clusters.delete(uuid))

    async def upgrade(self, uuid: str, template: str) -> None:
        """Move a cluster to another template."""
        clusters = "cluster upgrade"
        await self.ask(
            f"{clusters} {uuid} {template}", lambda: self.cloud.magnum.clusters.upgrade(uuid, template)
        )

    async def resize(self, uuid: str, count: int, group: str | None = None) -> None:
        """Ask for a number of nodes, of the default workers where no group is named.

        By the action, not by a PATCH of node_count as the official provider does for clusters: Magnum takes
        the action after an UPDATE_FAILED too (magnum/conductor/handlers/cluster_conductor.py), which is what
        makes a second try possible.
        """
        await self.ask(
            f"cluster resize {uuid} {count}" + (f" --nodegroup {group}" if group else ""),
            lambda: self.cloud.magnum.clusters.resize(uuid, count, nodegroup=group),
        )

    # Node groups.

    async def groups(self, cluster: str) -> list[Live]:
        """Every group of a cluster, in short; Magnum's API gives at most 1000 (``[api] max_limit``)."""
        found = await self.ask(
            f"nodegroup list {cluster}", lambda: self.cloud.magnum.nodegroups.list(cluster)
        )
        return [_plain(one) for one in found]

    async def group(self, cluster: str, key: str) -> Live | None:
        """A group by uuid or name."""
        return await self.find(
            f"nodegroup show {cluster} {key}", lambda: self.cloud.magnum.nodegroups.get(cluster, key)
        )

    async def create_group(self, cluster: str, body: Mapping[str, Any]) -> str:
        """Ask for a group; returns its uuid."""
        made = await self.ask(
            f"nodegroup create {cluster} {body.get('name')}",
            lambda: self.cloud.magnum.nodegroups.create(cluster, **body),
        )
        return str(made.uuid)

    async def patch_group(self, cluster: str, uuid: str, patch: Sequence[Mapping[str, Any]]) -> None:
        """Change the bounds of a group: Magnum takes no other change of one."""
        await self.ask(
            f"nodegroup update {cluster} {uuid}",
            lambda: self.cloud.magnum.nodegroups.update(cluster, uuid, list(patch)),
        )

    async def delete_group(self, cluster: str, uuid: str) -> None:
        """Ask for its end; already gone, alone or with its cluster, is success."""
        await self.find(
            f"nodegroup delete {cluster} {uuid}", lambda: self.cloud.magnum.nodegroups.delete(cluster, uuid)
        )

    # Templates and certificates.

    async def template(self, key: str) -> Live | None:
        """A template by uuid or name. A name that several have is an `ApiError` with status 409."""
        return await self.find(
            f"cluster template show {key}", lambda: self.cloud.magnum.cluster_templates.get(key)
        )

    async def create_template(self, body: Mapping[str, Any]) -> str:
        """Make a template; returns its uuid."""
        made = await self.ask(
            f"cluster template create {body.get('name')}",
            lambda: self.cloud.magnum.cluster_templates.create(**body),
        )
        return str(made.uuid)

    async def patch_template(self, uuid: str, patch: Sequence[Mapping[str, Any]]) -> None:
        """Change a template; Magnum refuses that while a cluster uses it."""
        await self.ask(
            f"cluster template update {uuid}",
            lambda: self.cloud.magnum.cluster_templates.update(uuid, list(patch)),
        )

    async def delete_template(self, uuid: str) -> None:
        """Remove it; already gone is success."""
        await self.find(
            f"cluster template delete {uuid}", lambda: self.cloud.magnum.cluster_templates.delete(uuid)
        )

    async def authority(self, cluster: str) -> str:
        """The certificate of a cluster's authority, PEM."""
        found = await self.ask(f"ca show {cluster}", lambda: self.cloud.magnum.certificates.get(cluster))
        return str(found.pem)

    async def sign(self, cluster: str, request: str) -> str:
        """Have a cluster's authority sign a request; returns the certificate, PEM."""
        made = await self.ask(
            f"ca sign {cluster}",
            lambda: self.cloud.magnum.certificates.create(cluster_uuid=cluster, csr=request),
        )
        return str(made.pem)

    async def me(self) -> tuple[str, str]:
        """Project and user that the credentials are of."""

        def ids() -> tuple[str, str]:
            session = self.cloud.session
            return str(session.get_project_id() or ""), str(session.get_user_id() or "")

        found: tuple[str, str] = await self.ask("cluster list", ids)
        return found


def _plain(resource: Any) -> Live:
    """What magnumclient got: its bags of attributes would ask again for one that is not there."""
    found: Live = resource.to_dict() if hasattr(resource, "to_dict") else dict(resource)
    return found
