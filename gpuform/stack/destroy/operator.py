"""Objects that NVIDIA's operator must finish before a destroy uninstalls it from a cluster that stays.

A GPUCluster has a finalizer that only the operator removes, and an NVIDIADriver's pods end by its order;
without the operator both stay. NVIDIA's order: delete them, wait, then uninstall (its page about uninstalling
it; github.com/NVIDIA/gpu-operator/pull/2716). Those of the stack's own release are deleted with
it, by its hook. A ClusterPolicy has no finalizer: what it owns goes with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.kubernetes.cluster import Cluster, is_deleting, name_of
from gpuform.kubernetes.kinds import Kind
from gpuform.stack.destroy.waiting import Remaining, Say, remaining_object, require_deleted, summarise
from infra.plan import sharing

_GROUP = "/apis/nvidia.com/v1alpha1"
GPU_CLUSTER = Kind("GPUCluster", _GROUP, "gpuclusters")
DRIVER = Kind("NVIDIADriver", _GROUP, "nvidiadrivers")
KINDS = (GPU_CLUSTER, DRIVER)
RELEASE = "gpu-operator"
BOUND_S = 300.0
"""As in NVIDIA's documentation."""
_ANNOTATIONS = {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": sharing.NAMESPACE}


def require_finished(cluster: Cluster, seconds: float, say: Say) -> None:
    """Wait for those that are being deleted.

    Raises Failure, before anything is deleted, if one is not, or still exists when the time is up.
    """
    left = [(kind, item) for kind, item in _list_foreign(cluster) if not is_deleting(item)]
    if left:
        names = " ".join(f"{kind.plural}.nvidia.com/{name_of(item)}" for kind, item in left)
        raise Failure(
            "destroy: NVIDIA's operator",
            f"{summarise(list(starmap(remaining_object, left)))}; only the running operator can delete it",
            f"delete the pods that use it, then `kubectl delete {names}`, and run the same command again",
        )

    def list_remaining() -> list[Remaining]:
        return [remaining_object(kind, item) for kind, item in _list_foreign(cluster)]

    remedy = (
        "the operator removes the finalizer once nothing uses the GPUs: see its log "
        f"(`kubectl -n {sharing.NAMESPACE} logs deployment/{RELEASE}`), and run the same command again"
    )
    require_deleted("NVIDIA's operator", list_remaining, seconds, say, remedy)


def _list_foreign(cluster: Cluster) -> list[tuple[Kind, Mapping[str, Any]]]:
    """Objects that do not belong to the stack's release."""
    items = [(kind, item) for kind in KINDS for item in cluster.list_objects(kind)]
    return [(kind, item) for kind, item in items if not _is_own(item)]


def _is_own(item: Mapping[str, Any]) -> bool:
    return _ANNOTATIONS.items() <= (item["metadata"].get("annotations") or {}).items()
