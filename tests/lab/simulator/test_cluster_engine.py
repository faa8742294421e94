"""On a real control plane: the toolkit's default ends a node's containerd, and what we declare does not."""

from __future__ import annotations

import pytest

from lab.simulator import keys
from tests.lab.simulator.site import Site

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def ready(site: Site, node: str) -> dict[str, str]:
    conditions = site.get("node", node)["status"].get("conditions", ())
    result: dict[str, str] = next((condition for condition in conditions if condition["type"] == "Ready"), {})
    return result


def test_the_charts_default_takes_a_node_not_ready_until_a_person_mends_it(site: Site) -> None:
    site.operator(toolkit={}, mig={"strategy": ""})
    node = site.node("gpu-0", "1eb8")
    down = site.until(lambda: ready(site, node), lambda found: found.get("status") == "False")
    output = "containerd: drop-in config version 4 higher than root config version 2"
    assert down["message"] == f"container runtime is down: {output}"
    taints = ("get", "node", node, "-o", "jsonpath={.spec.taints[*].key}")
    site.until(lambda: site.kubectl(*taints), lambda found: "node.kubernetes.io/not-ready" in found)
    assert site.operands(node, "nvidia-device-plugin-daemonset") == [] or not site.allocatable(node)

    site.operator(mig={"strategy": ""})
    other = site.node("gpu-1", "1eb8")
    site.offers(other, {"gpu": 1})
    assert ready(site, other)["status"] == "True"
    assert ready(site, node)["status"] == "False"  # another environment alone does not bring it back
    site.kubectl("annotate", "node", node, f"{keys.RUNTIME_DOWN}-")
    site.offers(node, {"gpu": 1})
    site.until(lambda: ready(site, node), lambda found: found.get("status") == "True")
