"""A changed MIG layout, killed with engine and plugins during the relayout of its nodes, and run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.journey.conftest import Checkout
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

IMAGE = "tensorflow/tensorflow:2.12.0-gpu"
SEVEN, TWO = {"1g.5gb": 7}, {"3g.20gb": 2}
NAMES = {"1g.5gb": "all-1g.5gb", "3g.20gb": "all-3g.20gb"}


def declared(layout: dict[str, int]) -> Callable[[dict[str, Any]], None]:
    """Two nodes with one A100 each, both at a time, and a pod on each."""

    def edit(environment: dict[str, Any]) -> None:
        pool = {
            "name": "a100",
            "machine": "g4.p1.40g",
            "nodes": 2,
            "sharing": {"kind": "mig", "layout": layout},
        }
        environment["pools"] = [{**pool, "relayout": {"max_unavailable": 2}}]
        work = {"name": "work", "namespace": "science", "kind": "deployment", "pool": "a100", "image": IMAGE}
        environment["workloads"] = [{**work, "replicas": 2}]

    return edit


def nodes(checkout: Checkout) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(checkout.kubectl("get", "nodes", "-o", "json"))["items"]
    return found


def closed(node: dict[str, Any]) -> bool:
    return bool(node["spec"].get("unschedulable")) or "gpuform.io/relayout" in node["metadata"]["annotations"]


def killed_when(checkout: Checkout, seen: Callable[[dict[str, Any]], bool]) -> None:
    """`local up`, killed by SIGKILL with all its children once a node satisfies ``seen``."""
    run = subprocess.Popen(
        checkout.command("local", "up"),
        env=checkout.env,
        cwd=checkout.paths.root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def look() -> bool:
        assert run.poll() is None, "it has ended"
        return any(seen(node) for node in nodes(checkout))

    try:
        until(look, seconds=120)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()


def test_it_goes_on_wherever_it_was_killed_and_no_node_stays_closed(fresh: Checkout) -> None:
    fresh.change(declared(SEVEN))
    fresh.gpuform("local", "up")
    for layout, told in ((TWO, False), (SEVEN, True)):
        ((profile, count),) = layout.items()
        fresh.change(declared(layout))

        def under_way(node: dict[str, Any], name: str = NAMES[profile], told: bool = told) -> bool:
            return closed(node) and (not told or node["metadata"]["labels"]["nvidia.com/mig.config"] == name)

        killed_when(fresh, under_way)
        assert any(closed(node) for node in nodes(fresh))
        fresh.gpuform("local", "up")
        assert not any(closed(node) for node in nodes(fresh))
        assert fresh.offers()["a100"] == [{f"nvidia.com/mig-{profile}": count}] * 2
        assert [pod["phase"] for pod in fresh.status()["pods"] if pod["namespace"] == "science"] == [
            "Running"
        ] * 2
