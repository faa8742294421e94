"""Asks Prometheus which faults are active and which nodes are measured; rejects invalid answers.

Part of the health loop's ConfigMap. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import http.client
import json
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # python3 -I does not search this folder
if TYPE_CHECKING:
    from infra.incluster.cases import Fault
else:
    from cases import Fault

_RECORDED = '{job=""}'
"""Matches no scraped series of a recorded one's name: each scraped one has a job."""
SERIES = f"gpuform:fault:active{_RECORDED}"
_SHOWN = f"count by (node) (group by (node,gpu) (gpuform:gpu:temperature_celsius{_RECORDED}))"
_DECLARED = f"max by (node) (gpuform:node:gpus{_RECORDED})"
MEASURED = f"{_SHOWN} >= on (node) ({_DECLARED} or on (node) {_SHOWN})"
"""Nodes with as many measured GPUs as their pool declares; any number if it declares none."""
CLASSES = ("application", "informational", "reset", "replace")
LONGEST = 16 * 2**20  # bytes of an answer; 100 000 series are less
TIMEOUT_S = 10.0
TROUBLE = (OSError, http.client.HTTPException, ValueError)
"""Exceptions raised if there is no readable answer."""


def faults(server: str) -> list[Fault]:
    """Every active fault; raises one of ``TROUBLE`` if Prometheus is unreachable or its answer invalid."""
    return read(_answer(server, SERIES))


def measured(server: str) -> frozenset[str]:
    """Nodes with all GPUs measured now; raises as ``faults`` does."""
    return names(_answer(server, MEASURED))


def _answer(server: str, expression: str) -> Any:
    query = urllib.parse.urlencode({"query": expression})
    url = f"{server.rstrip('/')}/api/v1/query?{query}"
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{server} is not an http(s) address")
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 (checked above)
        text = answer.read(LONGEST + 1)
    if len(text) > LONGEST:
        raise ValueError(f"its answer is longer than {LONGEST} bytes")
    return json.loads(text)


def read(answer: Any) -> list[Fault]:
    """The faults in an answer; ValueError if any part of it is invalid.

    One unreadable series rejects the whole answer: the readable part may be the wrong one.
    """
    try:
        found = [one["metric"] for one in _vector(answer) if float(one["value"][1]) == 1]
        return [fault for fault in map(_fault, found) if fault.node]  # else its place is unknown
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"its answer has no {error}" if isinstance(error, KeyError) else str(error)
        ) from None


def names(answer: Any) -> frozenset[str]:
    """The nodes in an answer; ValueError if any part of it is invalid."""
    try:
        return frozenset(str(one["metric"]["node"]) for one in _vector(answer))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"its answer does not name nodes: {error}") from None


def _vector(answer: Any) -> list[Any]:
    if answer["status"] != "success" or answer["data"]["resultType"] != "vector":
        raise ValueError(f"it answers {str(answer)[:200]}")
    found: list[Any] = answer["data"]["result"]
    return found


def _fault(labels: dict[str, str]) -> Fault:
    kind, node = labels["class"], labels.get("node", "")
    if kind not in CLASSES:
        raise ValueError(f"a fault of node {node!r} has class {kind!r}; known: {', '.join(CLASSES)}")
    own = {key: str(labels.get(key, "")) for key in ("gpu", "UUID", "xid", "reason")}
    return Fault(node, own["gpu"], own["UUID"], own["xid"], kind, own["reason"])
