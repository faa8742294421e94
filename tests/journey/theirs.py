"""A cluster of others, played by a second embedded one, and a stack that uses it.

NVIDIA's chart repository is unreachable, so one on loopback serves our chart under NVIDIA's name and version;
the release is installed in the same way.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.conftest import Plane
from tests.journey.conftest import Checkout
from tests.waiting import until


def live(plane: Plane, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plane.kubectl("get", "node", name, "-o", "json"))
    return found


def declare(
    checkout: Checkout, theirs: Plane, repository: str, selector: dict[str, str], **more: Any
) -> None:
    environment = {
        "name": "there",
        "cluster": {"kind": "existing", "kubeconfig": str(theirs.kubeconfig)},
        "gpu_operator": {"repository": repository},
        "pools": [
            {
                "name": "a100",
                "gpu": {"models": ["A100-40GB"], "count": 1},
                "selector": selector,
                "sharing": {"kind": "mig", "layout": "all-1g.5gb"},
            }
        ],
        **more,
    }
    stack = {"config": {"gpuform:environment": environment}}
    (checkout.paths.root / "Pulumi.there.yaml").write_text(yaml.safe_dump(stack))


def proven(theirs: Plane, name: str) -> dict[str, Any]:
    noted = "gpuform.io/gpu-ready"
    annotations = until(lambda: live(theirs, name)["metadata"]["annotations"], lambda all_: noted in all_, 60)
    found: dict[str, Any] = json.loads(annotations[noted])
    return found
