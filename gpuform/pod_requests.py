"""What a pod asks of its node, by the scheduler's rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

Json = Mapping[str, Any]


def requested(spec: Json, of: Callable[[Json], Mapping[str, Any]]) -> Counter[str]:
    """Its containers together, or its largest init container: these run one after the other, and before them.

    ``of`` says what one container asks for.
    """
    found: Counter[str] = Counter()
    for container in spec.get("containers") or ():
        found.update(of(container))
    for container in spec.get("initContainers") or ():
        found |= Counter(of(container))
    return found
