"""Parts that an existing cluster has already: NVIDIA's operator, a device plugin, node feature discovery.

Helm puts the annotations below on what it makes, and refuses to take over another release's objects
(github.com/helm/helm, pkg/action/validate.go). The operator works by the first ClusterPolicy that it sees and
ignores every other one (github.com/NVIDIA/gpu-operator, controllers/clusterpolicy_controller.go). Two device
plugins register the same resource, and two masters of node feature discovery delete each other's labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.engine.pending import RELEASE, operations
from gpuform.kubernetes.kubeconfigs import answered
from gpuform.stack.preflight.check import Check, Judged, state_here
from infra.model.environment import Environment
from infra.plan import device_plugin, sharing, startup

POLICIES, DAEMON_SETS = "clusterpolicies.nvidia.com", "daemonsets.apps"
NFD, PLUGINS = ("node-feature-discovery",), ("k8s-device-plugin", "nvidia-gpu-device-plugin")
"""Names of the images of node feature discovery, and of device plugins (NVIDIA's and GKE's)."""
_OURS = {(sharing.NAMESPACE, name) for name in ("gpu-operator", device_plugin.NAME)}
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Parts:
    """What the cluster has: ``ask`` lists the objects of a kind; ``made`` is what `installed` returns."""

    env: Environment
    made: bool | None
    ask: Callable[[str], Iterable[Json]]

    @cached_property
    def daemon_sets(self) -> Sequence[Json]:
        return list(self.ask(DAEMON_SETS))

    def of_image(self, names: Sequence[str]) -> list[Json]:
        """DaemonSets of these images, without the operator's own."""
        return [one for one in self.daemon_sets if named(one, names) and not by_operator(one)]

    def others(self, objects: Iterable[Json]) -> list[Json]:
        """Those that the stack's release has not made; its release is another stack's if it made none."""
        return [one for one in objects if self.made is False or _release(one) not in _OURS]

    def own(self, objects: Sequence[Json]) -> Judged:
        """The result if no others are there."""
        if objects and self.made is None:
            fact = f"{_said(objects)}; the stack's state is elsewhere, so it may be another stack's"
            return Judged("SKIP", fact, "if it is, uninstall it first")
        return Judged("PASS", "it is the stack's own" if objects else "none is there")


def checks(env: Environment, by_hand: str) -> Iterator[Check]:
    """``by_hand``: kubectl with the options for this cluster."""
    yield Check("GPU operator", f"{by_hand} get {POLICIES} -o yaml", operator)
    if env.gpu_operator.mode != "existing":
        sets = f"{by_hand} get {DAEMON_SETS} -A -o wide"
        yield Check("device plugin", sets, plugin)
        yield Check("node feature discovery", sets, discovery)


def listed(kubeconfig: str, context: str | None, kind: str) -> list[Json]:
    """All objects of a kind; none if the server does not have it. Raises Failure without an answer."""
    import httpx
    import kr8s

    from gpuform.kubernetes import session

    try:
        with answered():
            api = session.api(kubeconfig, context)
            found: Iterable[Any] = api.get(kind, namespace=kr8s.ALL)
            return [dict(one.raw) for one in found]
    except (ValueError, OSError, httpx.HTTPError) as error:
        if str(error) == f"Kind {kind.partition('.')[0]} not found.":  # kr8s, Api.async_lookup_kind
            return []
        raise Failure("cluster", str(error) or type(error).__name__, f"check {kubeconfig}") from None


def installed(paths: Paths, stack: str) -> bool | None:
    """Whether the state beside the checkout has a Helm release, or is to; None if it is elsewhere."""
    if (state := state_here(paths, stack)) is None:
        return None
    there = [one["type"] for one in state["deployment"].get("resources") or ()]
    return RELEASE in (*there, *(one.type for one in operations(state)))


def operator(parts: Parts) -> Judged:
    found = list(parts.ask(POLICIES))
    others = parts.others(found)
    if parts.env.gpu_operator.mode == "existing":
        if others:
            return _tolerated(parts.env, [one for one in parts.daemon_sets if by_operator(one)], others)
        fact = "none of another release is there, and gpu_operator.mode is existing"
        return Judged("FAIL", fact, "use gpu_operator.mode: operator, or install one first")
    if not others:
        return parts.own(found)
    why = "Helm refuses a second operator, and of two ClusterPolicies one is ignored"
    if parts.env.gpu_operator.mode == "device_plugin":
        why = "two device plugins would offer the same GPUs"
    fact = f"{_said(others)}: {why}"
    return Judged("FAIL", fact, "use gpu_operator.mode: existing, or uninstall that one first")


def plugin(parts: Parts) -> Judged:
    found = parts.of_image(PLUGINS)
    others = parts.others(found)
    if not others:
        return parts.own(found)
    return Judged("FAIL", f"{_said(others)}: two would offer the same GPUs", "uninstall that one first")


def discovery(parts: Parts) -> Judged:
    found = parts.of_image(NFD)
    others = parts.others(found)
    if parts.env.gpu_operator.nfd:
        if not others:
            return parts.own(found)
        fact = f"{_said(others)}: two would delete each other's labels"
        return Judged("FAIL", fact, "use gpu_operator.nfd: false, or uninstall that one first")
    if others:
        return _tolerated(parts.env, others, others)
    return Judged("FAIL", "none but the stack's is there, and gpu_operator.nfd is false", "leave nfd out")


def _tolerated(env: Environment, sets: Iterable[Json], there: Sequence[Json]) -> Judged:
    """FAIL if pods of these DaemonSets stay away from the nodes with GPUs, because of a taint."""
    pools = [pool for pool in env.pools if pool.gpus]
    taints = [
        one for pool in pools for one in sharing.pool_taints(env, pool) + startup.startup_taints(env, pool)
    ]
    for one in sets:
        has = one["spec"]["template"]["spec"].get("tolerations") or ()
        missing = [taint for taint in taints if not any(_tolerates(each, taint) for each in has)]
        if missing:
            fact = f"{_said(there)}; {name(one)} does not tolerate {missing[0]['key']}:{missing[0]['effect']}"
            return Judged("FAIL", fact, "add the toleration to the values of its chart")
    return Judged("PASS", f"{_said(there)}, and tolerates the taints of the nodes")


def _tolerates(toleration: Json, taint: Json) -> bool:
    """As Kubernetes' ``Toleration.ToleratesTaint``."""
    exists = toleration.get("operator") == "Exists"
    return (
        toleration.get("effect") in (None, "", taint["effect"])
        and (toleration.get("key") == taint["key"] or (exists and not toleration.get("key")))
        and (exists or (toleration.get("value") or "") == taint.get("value", ""))
    )


def by_operator(one: Json) -> bool:
    """Whether NVIDIA's operator has made the object."""
    return any(by["kind"] == "ClusterPolicy" for by in one["metadata"].get("ownerReferences") or ())


def containers(one: Json) -> Sequence[Json]:
    """Containers of a DaemonSet or Deployment."""
    found: Sequence[Json] = one["spec"]["template"]["spec"]["containers"]
    return found


def image(container: Json) -> str:
    """The last part of its image's name, without tag and digest."""
    return str(container["image"]).partition("@")[0].rpartition("/")[2].partition(":")[0]


def named(one: Json, images: Sequence[str]) -> bool:
    """Whether a container of the object has an image of one of these names."""
    return any(image(container) in images for container in containers(one))


def _release(one: Json) -> tuple[str, str]:
    said = one["metadata"].get("annotations") or {}
    return said.get("meta.helm.sh/release-namespace", ""), said.get("meta.helm.sh/release-name", "")


def name(one: Json) -> str:
    """``namespace/name``, or the name alone."""
    return "/".join(filter(None, (one["metadata"].get("namespace"), one["metadata"]["name"])))


def _said(objects: Sequence[Json]) -> str:
    """The first, with the release that it is of."""
    release = "/".join(filter(None, _release(objects[0])))
    return f"{name(objects[0])} is there, {f'of Helm release {release}' if release else 'not by Helm'}"
