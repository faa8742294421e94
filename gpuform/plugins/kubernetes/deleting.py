"""Delete: ask once, then wait until the object is really gone."""

from __future__ import annotations

from gpuform.plugins.handler import Call, PluginError, Properties
from gpuform.plugins.kubernetes import manifests
from gpuform.plugins.kubernetes.client import ApiError, Unreachable
from gpuform.plugins.kubernetes.cluster import Cluster
from gpuform.plugins.kubernetes.messages import refusal
from gpuform.plugins.kubernetes.naming import split_id
from gpuform.plugins.kubernetes.replacement import group_of
from gpuform.plugins.kubernetes.waiting import limit, until_gone

# The official provider deletes everything in the foreground, that is, waits until dependents are gone. Kinds
# of these groups have none to wait for but those below, and the garbage collector, which must release every
# object of a foreground delete, takes about 6 a second (measured: 200 Nodes 35 s; in the background 2 s).
_WITHOUT_DEPENDENTS = (
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "coordination.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
)
_WITH_DEPENDENTS = (("", "ReplicationController"), ("", "Pod"))
_POLICIES = {"foreground": "Foreground", "background": "Background", "orphan": "Orphan"}


async def delete_object(
    cluster: Cluster, call: Call, id: str, old_inputs: Properties, olds: Properties
) -> None:
    """Delete the object ``id`` and what it owns; already gone is success, as is a kind that is gone.

    Raises `PluginError` when it is still there after the time limit, naming the finalizer. With the
    annotation pulumi.com/skipAwait nobody waits; pulumi.com/deletionPropagationPolicy chooses what happens
    to dependents.
    """
    api_version, kind = manifests.of_token(call.type)
    manifest = {"apiVersion": api_version, "kind": kind} | (old_inputs or olds.get("__inputs") or olds)
    try:
        found = await cluster.type_of(manifest, fresh=True)
        if found is None:
            return
        namespace, name = split_id(id)
        path = found.path(namespace or cluster.access.namespace, name)
        live = await cluster.client.find(path)
        if live is None:
            return
        await _ask(cluster, path, manifest, live["metadata"]["uid"])
    except Unreachable as problem:
        if cluster.settings.delete_unreachable:
            await call.warn(f"{problem}; taken out of the state all the same, as deleteUnreachable says")
            return
        raise PluginError(
            f"{problem}; start the cluster, or give the resource up: deleteUnreachable: true on the provider"
        ) from None
    if not manifests.flag(manifest, manifests.SKIP_AWAIT):
        await until_gone(call, cluster.client, path, live, limit(call, manifest))


async def _ask(cluster: Cluster, path: str, manifest: Properties, uid: str) -> None:
    wanted = manifests.annotation(manifest, manifests.PROPAGATION).lower() or _default_policy(manifest)
    if wanted not in _POLICIES:
        raise PluginError(
            f"annotation {manifests.PROPAGATION} is {wanted!r}; use one of {', '.join(_POLICIES)}"
        )
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": _POLICIES[wanted],
        "preconditions": {"uid": uid},
    }
    try:
        await cluster.client.request("DELETE", path, body=body)
    except ApiError as error:
        if error.code == 404 or (error.code == 409 and "uid" in error.message.lower()):
            return
        raise refusal(error, manifest, manifest) from None


def _default_policy(manifest: Properties) -> str:
    key = (group_of(str(manifest["apiVersion"])), str(manifest["kind"]))
    alone = key[0] in _WITHOUT_DEPENDENTS and key not in _WITH_DEPENDENTS
    return "background" if alone else "foreground"
