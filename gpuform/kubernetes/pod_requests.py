"""What a pod requests from its node, by the scheduler's rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

Json = Mapping[str, Any]


def requested(spec: Json, of: Callable[[Json], Mapping[str, Any]]) -> Counter[str]:
    """The larger of all containers together and the largest init container.

    Init containers run one after the other, before the containers. ``of`` returns what one container
    requests.
    """
    found: Counter[str] = Counter()
    for container in spec.get("containers") or ():
        found.update(of(container))
    for container in spec.get("initContainers") or ():
        found |= Counter(of(container))
    return found
