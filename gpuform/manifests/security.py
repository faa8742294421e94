"""What the levels of Pod Security refuse in pods of manifests."""

from __future__ import annotations

from collections.abc import Iterator

from gpuform.manifests.documents import Keys
from gpuform.manifests.pods import FoundPod
from infra.plan import pod_security


def violations(pod: FoundPod, level: str) -> Iterator[tuple[Keys, str]]:
    """Where a pod violates the level, and how."""
    containers = [
        (one.at[:-1], {"name": one.name, **one.value}) for one in pod.containers if one.at[-1] != "gpu"
    ]
    places = {keys for keys, _ in containers}
    for keys, fact in pod_security.violations(pod.spec, containers, level):
        yield (keys if keys[:-1] in places else (*pod.at, *keys)), fact
