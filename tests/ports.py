from __future__ import annotations

import itertools
import os

from lab.plane.ports import is_free

# Below the ports of control planes (20000) and of outgoing connections (32768); a thousand for each worker,
# so that no other worker takes one between its choice and its use.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 9
_NEXT = itertools.cycle(range(11000 + 1000 * _WORKER, 12000 + 1000 * _WORKER))


def free_port() -> int:
    return next(port for port in _NEXT if is_free(port))
