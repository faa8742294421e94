"""Prometheus' answers to the health loop, with series that a tenant's exporter forges.

Recorded series have no label ``job``; each scraped one has that of its scrape configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from infra.incluster.cases import Fault

FAULTS, MEASURED = "gpuform:fault:active", "gpuform:gpu:temperature_celsius"
FORGED = {"job": "of-a-tenant", "class": "replace", "xid": "79", "gpu": "0", "UUID": "GPU-f", "reason": "xid"}


def answer(expression: str, faults: Iterable[Fault], seen: Iterable[str], nodes: Iterable[str]) -> Any:
    """For a query of the faults, or of the nodes that are ``seen``; all ``nodes`` are told of, too."""
    if FAULTS in expression:
        name, own = FAULTS, [_labels(one) for one in faults]
    else:
        name, own = MEASURED, [{"node": one} for one in seen]
    asked = re.search(rf'{name}(?:{{job="([^"]*)"}})?', expression)
    assert asked, expression
    found = [*own, *({**FORGED, "node": node} for node in nodes)]
    series = [one for one in found if asked[1] in (None, one.get("job", ""))]
    result = [{"metric": one, "value": [0, "1"]} for one in series]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def _labels(one: Fault) -> dict[str, str]:
    own = {"node": one.node, "gpu": one.gpu, "UUID": one.uuid, "xid": one.xid}
    return {**own, "class": one.kind, "reason": one.reason}
