"""docs/reference/json.md shows the keys of the real output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gpuform.cli.main import app
from gpuform.engine import Violation
from gpuform.engine.events import Change, Step
from gpuform.hosts.declared import DeclaredHosts, status_rows
from gpuform.hosts.events import HostResult, Outcome
from gpuform.hosts.verify import Report, Verdict
from gpuform.stack.preview.effect import Effect, Weight
from gpuform.stack.preview.outcome import Outcome as Preview
from gpuform.stack.preview.snapshot import PodRef
from gpuform.usage.health import HealthStatus, Ticket, UnhealthyNode
from gpuform.usage.queues import QueueStatus, Usage, Waiting
from gpuform.usage.status import summarise_status
from infra.model.base.prices import PriceList
from infra.plan import cost
from infra.plan.cost import to_document
from tests.build.clusters import dump_of
from tests.reports.live import ENV, node, pod

pytestmark = pytest.mark.unit

PAGE = (Path(__file__).parents[2] / "docs/reference/json.md").read_text(encoding="utf-8")
NAMED = ("allocatable", "used", "units", "changes", "checks")
"""Keys with a mapping as value; its names differ from cluster to cluster."""


def status() -> dict[str, Any]:
    current = summarise_status(
        ENV,
        [node("t4-0", "t4", gpu="4")],
        [pod("a", "t4-0", {"phase": "Running"}, shares=1)],
        queues=(QueueStatus("q", 1, (Usage("t4", "r", 2, 3, 1),), (Waiting("n", "Job", "j", "why"),)),),
    )
    return {**current.to_json(), "cost": to_document(cost.bill(ENV, PriceList()))}


def preview() -> dict[str, Any]:
    steps = (Step("update", "urn:pulumi:s::p::t::map", "planned", Change({}, {}, ("data.config",))),)
    pods = (PodRef("science", "Deployment/web", "web-1", "t4", "t4-0", gpu=True),)
    effects = (Effect(Weight.EVICTION, "pool t4", "nodes are replaced", ("t4-0",), pods),)
    broken = (Violation("gpuform/encrypted", True, "a is not", "urn:x::y::z::class"),)
    return Preview("prod", True, True, {"same": 40}, steps, effects, broken).to_json()


def images() -> dict[str, Any]:
    listed: dict[str, Any] = json.loads(CliRunner().invoke(app, ["images", "onprem-dev", "--json"]).stdout)
    return listed


def health() -> dict[str, Any]:
    nodes = (UnhealthyNode("gpu-0", "a100", "replace", "then", "why", None),)
    seen = HealthStatus(nodes, (Ticket("gpu-0", True, {}),), None, ())
    return {"mode": "ticket", **seen.to_json()}


def hosts_status() -> dict[str, Any]:
    declared = DeclaredHosts("s", ENV, {"_meta": {"hostvars": {"gpu-1": {}}}}, None, None)
    return {"hosts": status_rows(declared, Outcome({"gpu-1": HostResult(ok=True)}, 0), {"gpu-1": "-"})}


def hosts_apply() -> dict[str, Any]:
    return {"ok": True, "hosts": {"gpu-1": HostResult(ok=True).to_json()}, "nodes": {"a100-mig": ["gpu-1"]}}


def hosts_verify() -> dict[str, Any]:
    return Report("s", "ssh", (Verdict("gpu-1", "nouveau", "FAIL", "is loaded", "do"),)).to_json()


def check() -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": 64}}
    pod = {"kind": "Pod", "spec": {"containers": [{"name": "c", "image": "a:1", "resources": limits}]}}
    options = ["check", "local", "-f", "-", "--json"]
    found: dict[str, Any] = json.loads(CliRunner().invoke(app, options, input=json.dumps(pod)).stdout)
    return found


def plan() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        CliRunner().invoke(app, ["plan", "openstack-dev", "--explain", "--json"]).stdout
    )
    placed = next(one for one in found["demands"] if one["slice"])
    cut = next(one for one in found["pools"] if one.get("sharing", {}).get("layout"))
    cut["sharing"]["layout"] = {"3g.20gb": 2}
    return found | {"pools": [cut], "demands": [placed]}


def adopt() -> dict[str, Any]:
    items = yaml.safe_load((Path(__file__).parents[1] / "adopt/clusters/aks-spot.yaml").read_text())[
        "objects"
    ]
    with TemporaryDirectory() as folder:
        options = ["adopt", "--from", str(dump_of(items[1:], Path(folder))), "--json"]
        found: dict[str, Any] = json.loads(CliRunner().invoke(app, options).stdout)
    del found["environment"]["gpu_operator"]["gpu_taint"], found["environment"]["pools"][0]["taints"]
    return found


def whatif() -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "t.csv"
        trace.write_text("arrival,duration,name,gpus,cpu,memory\n0,60,a,1,1,1\n")
        options = ["whatif", "local", "--trace", str(trace), "--policy", "fgd", "--json"]
        found: dict[str, Any] = json.loads(CliRunner().invoke(app, options).stdout)
    return found


REAL = {
    "status": status,
    "preview": preview,
    "images": images,
    "health status": health,
    "hosts apply": hosts_apply,
    "hosts status": hosts_status,
    "hosts verify": hosts_verify,
    "plan": plan,
    "check": check,
    "adopt": adopt,
    "whatif": whatif,
}


def keys(value: Any, path: str = "") -> set[str]:
    """Every path of keys; lists and mappings by name count by their first entry."""
    if isinstance(value, list):
        return keys(value[0], f"{path}[]") if value else set()
    if not isinstance(value, dict):
        return set()
    if path.endswith(NAMED) or "gpu-1" in value:
        return keys(next(iter(value.values()), None), f"{path}.NAME")
    return {f"{path}.{name}" for name in value}.union(
        *(keys(item, f"{path}.{name}") for name, item in value.items())
    )


@pytest.mark.parametrize("command", REAL)
def test_the_page_has_the_keys_of(command: str) -> None:
    text = re.search(rf"^## `gpuform {command}`\n\n```json\n(.*?)```", PAGE, re.S | re.M)
    assert text is not None
    assert keys(json.loads(text[1])) == keys(json.loads(json.dumps(REAL[command]())))


def test_every_command_of_the_page_is_compared() -> None:
    assert re.findall(r"^## `gpuform (.+)`$", PAGE, re.M) == list(REAL)
