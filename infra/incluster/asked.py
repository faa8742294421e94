"""Which faults are active now, as Prometheus says; whatever else it says is no answer.

It lies beside the health loop, in the same ConfigMap. Standard library alone, Python 3.11 or newer.
"""

from __future__ import annotations

import http.client
import json
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # isolated, the interpreter does not look there by itself
if TYPE_CHECKING:
    from infra.incluster.cases import Fault
else:
    from cases import Fault

SERIES = "gpuform:fault:active"
CLASSES = ("application", "informational", "reset", "replace")
LONGEST = 16 * 2**20  # bytes of an answer; 100 000 series are less
TIMEOUT_S = 10.0
TROUBLE = (OSError, http.client.HTTPException, ValueError)
"""What is raised where there is no answer that can be read."""


def faults(server: str) -> list[Fault]:
    """Every active fault; one of ``TROUBLE`` where Prometheus is away or answers nonsense."""
    query = urllib.parse.urlencode({"query": SERIES})
    url = f"{server.rstrip('/')}/api/v1/query?{query}"
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{server} is no address of a Prometheus")
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 (looked at above)
        text = answer.read(LONGEST + 1)
    if len(text) > LONGEST:
        raise ValueError(f"its answer is longer than {LONGEST} bytes")
    return read(json.loads(text))


def read(answer: Any) -> list[Fault]:
    """The faults in an answer; ValueError unless all of it is as it must be.

    One series that cannot be read makes the whole answer nonsense: half of it may be the wrong half.
    """
    try:
        if answer["status"] != "success" or answer["data"]["resultType"] != "vector":
            raise ValueError(f"it answers {str(answer)[:200]}")
        found = [one["metric"] for one in answer["data"]["result"] if float(one["value"][1]) == 1]
        return [fault for fault in map(_fault, found) if fault.node]  # else nobody knows where it is
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"its answer has no {error}" if isinstance(error, KeyError) else str(error)
        ) from None


def _fault(labels: dict[str, str]) -> Fault:
    kind, node = labels["class"], labels.get("node", "")
    if kind not in CLASSES:
        raise ValueError(f"a fault of node {node!r} has class {kind!r}; known: {', '.join(CLASSES)}")
    own = {key: str(labels.get(key, "")) for key in ("gpu", "UUID", "xid", "reason")}
    return Fault(node, own["gpu"], own["UUID"], own["xid"], kind, own["reason"])
