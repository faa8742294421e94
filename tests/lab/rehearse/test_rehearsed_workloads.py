"""What a rehearsal places and may switch on, and what is refused before it starts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from infra.config import load, price_list
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.model.platform.monitoring import PROMETHEUS_URL
from infra.model.workload.workload import PodWorkload
from infra.plan.workloads import manifests
from lab.rehearse.cloud.market import Shortage
from lab.rehearse.cost_report import check_prices, price_source
from lab.rehearse.options import Options, parse_reservation_left, parse_shortage
from lab.rehearse.workloads import environment, refusals
from tests.build.aws_environments import CLAIMED, aws
from tests.build.aws_stacks import small
from tests.build.environments import declared

pytestmark = pytest.mark.unit

REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text())
ENVIRONMENT: dict[str, Any] = yaml.safe_load("""
    name: lab
    cluster: {kind: embedded}
    pools:
    - {name: t4, machine: g2.xlarge, nodes: 1, sharing: {kind: time_slicing, replicas: 4}}
    - {name: mig, machine: g4.p1.40g, nodes: 1, sharing: {kind: mig, layout: {3g.20gb: 2}}}
    - {name: cpu, machine: m6i.xlarge, nodes: 1}
    workloads: [{name: own, kind: pod, image: "x:1"}]
""")
AWS = small({"name": "l40s", "gpu": {"models": ["L40S"], "count": 1}, "elastic": {"max": {"cpu": 640}}})
SIZES = small({"name": "t4", "gpu": {"models": ["T4"], "count": [1, 4]}, "elastic": {"max": {"cpu": 640}}})
HOSTS = declared("hosts", {"gpu": {"models": ["T4"], "count": 1}}, cluster={"kubeconfig": None})
RESERVATION = "cr-0123456789abcdef0"


def work(**more: Any) -> dict[str, Any]:
    return {"name": "w", "kind": "deployment", "image": "x:1", **more}


def rehearsed(declared: dict[str, Any], file: Path, content: str | bytes | dict[str, Any]) -> Environment:
    """With the workloads of a file: its content, or one workload."""
    if isinstance(content, dict):
        content = yaml.safe_dump({"workloads": [content]})
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return environment(declared, "Pulumi.lab.yaml", file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "work.yaml"


def test_a_prometheus_of_others_is_one_of_the_rehearsals_own() -> None:
    scaled = {"kind": "inference", "pool": "p0", "scale": {"max": 2, "qps_per_replica": 5}}
    theirs = {"prometheus": {"url": "https://mimir.example", "secret": "metrics"}}
    stack = declared("existing", {"machine": "g2.5xlarge"}, monitoring=theirs, workloads=[scaled])
    env = environment(stack, "Pulumi.lab.yaml", scaled=True)
    (trigger,) = next(item for item in manifests(env) if item["kind"] == "ScaledObject")["spec"]["triggers"]
    assert trigger["metadata"]["serverAddress"] == PROMETHEUS_URL
    assert "authenticationRef" not in trigger


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row["fact"])
def test_a_refused_workload_hears_what_each_pool_fails_on(row: dict[str, Any], file: Path) -> None:
    with pytest.raises(InputError) as caught:
        rehearsed(ENVIRONMENT, file, work(**row["workload"]))
    assert caught.value.path == f"{file}: workloads[0]{'.' if row['at'] else ''}{row['at']}"
    assert caught.value.fact == row["fact"]


@pytest.mark.parametrize(
    ("declared", "held", "refused", "fact"),
    [
        (AWS, {"cpu": 63.5, "memory": "450Gi"}, {"cpu": 65}, "l40s: cpu, 65 requested of 63.575 cores"),
        (SIZES, {"count": 4}, {"count": 8}, "t4: nvidia.com/gpu, 8 requested of 4"),
        # Hosts do not declare their size, so no request is too large; they need not have joined a cluster.
        (HOSTS, {"cpu": 500}, {"count": 2}, "p0: nvidia.com/gpu, 2 requested of 1"),
    ],
    ids=["elastic", "several sizes", "hosts"],
)
def test_every_machine_of_a_pool_counts(
    declared: dict[str, Any], held: dict[str, Any], refused: dict[str, Any], fact: str, file: Path
) -> None:
    name = declared["pools"][0]["name"]
    assert rehearsed(declared, file, work(pool=name, **held)).workloads[0].pool == name
    with pytest.raises(InputError) as caught:
        rehearsed(declared, file, work(pool=name, **refused))
    assert caught.value.fact == f"no pool can hold it ({fact})"


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ({"gpu": {"compute": "8.9"}}, None),
        ({"gpu": {"compute": "9.0"}}, "compute capability 9.0 or later, its models are L4"),
        ({"count": 5}, "GPUs, 5 requested of 4 for claims"),
        ({"slice": "1g.5gb"}, "slice, it has whole GPUs for claims, not 1g.5gb"),
    ],
)
def test_a_workload_with_a_claim_hears_what_its_pool_cannot_give(
    requests: dict[str, Any], message: str | None
) -> None:
    one = PodWorkload.model_validate({**work(pool="p0", **requests), "kind": "pod"})
    assert list(refusals(aws(CLAIMED), one)) == ([("p0", message)] if message else [])


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (AWS, r"workloads\[0\].*: no pool can hold it \(l40s: taint nvidia.com/gpu"),
        (
            {**ENVIRONMENT, "workloads": [work(), work(name="b", pool="cpu", cpu=5)]},
            r"workloads\[1\]\.cpu: no pool can hold it \(cpu: cpu, 5 requested of 3.995 cores\)",
        ),
    ],
)
def test_the_stacks_own_workloads_are_refused_with_their_path(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        environment({"workloads": [work()], **declared}, "Pulumi.lab.yaml")


def test_a_file_replaces_the_own_workloads_even_where_those_are_wrong(file: Path) -> None:
    declared = {**ENVIRONMENT, "workloads": [work(pool="nowhere")]}
    assert [item.name for item in rehearsed(declared, file, work(name="other")).workloads] == ["other"]
    assert rehearsed(declared, file, "workloads:\n").workloads == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {name: a}\n", ": holds no mapping"),
        ("pools: []\nworkloads: []\n", ": holds pools, workloads"),
        ("{1: 2, a: b}\n", ": holds 1, a"),
        ("workloads: [\n", ":2:1: expected the node content"),
        ("workloads: {a: 1}\n", ": workloads: holds a mapping"),
        ("workloads: 3\n", ": workloads: holds the number 3; give a list"),
        (b"\xff\xfe", ": is not UTF-8 text"),
    ],
)
def test_a_file_that_holds_no_workloads_is_refused(text: str | bytes, message: str, file: Path) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(f'{file}{message}')}"):
        rehearsed(ENVIRONMENT, file, text)


def test_a_file_that_is_missing_is_refused(file: Path) -> None:
    with pytest.raises(InputError, match=f"^{file}: No such file or directory"):
        environment(ENVIRONMENT, "x", file)


def test_options_are_read_as_they_are_written() -> None:
    assert parse_shortage("p5.48xlarge") == Shortage("p5.48xlarge")
    assert parse_shortage("*:us-west-2a:spot") == Shortage("*", "us-west-2a", "spot")
    assert parse_reservation_left("cr-1") == ("cr-1", 0)
    assert parse_reservation_left("cr-1=3") == ("cr-1", 3)
    assert str(parse_shortage("p5.48xlarge:*:spot")) == "no capacity for p5.48xlarge (spot)"


@pytest.mark.parametrize(
    ("read", "option", "texts"),
    [
        (parse_shortage, "--short", ("", "a:b:spot:d", "a::spot", "a:b:free")),
        (parse_reservation_left, "--reservation-used", ("", "=1", "cr-1=many", "cr-1=-1", "cr-1=\u00b2")),
    ],
)
def test_other_texts_are_no_options(
    read: Callable[[str], object], option: str, texts: tuple[str, ...]
) -> None:
    for text in texts:
        with pytest.raises(InputError, match=f"^{option}"):
            read(text)


def stack(name: str) -> Environment:
    return load(Paths.here().root / f"Pulumi.{name}.yaml")


USELESS = {
    "--interrupt-spot: no pool uses spot capacity; leave it out": ("aws-dev", Options(interrupt_spot=True)),
    "no Karpenter pool uses this machine; did you": (
        "aws-dev",
        Options(shortages=(Shortage("g4dn.2xlarge"),)),
    ),
    "--short *:us-east-1c: is not a zone of the stack": (
        "aws-dev",
        Options(shortages=(Shortage("*", "us-east-1c"),)),
    ),
    f"is not a reservation of a Karpenter pool; known: {RESERVATION}": (
        "aws-prod",
        Options(reservations_left=(("cr-1", 0),)),
    ),
}


@pytest.mark.parametrize("message", USELESS)
def test_an_option_that_the_stack_has_no_use_for_is_refused(message: str) -> None:
    name, given = USELESS[message]
    with pytest.raises(InputError, match=re.escape(message)):
        given.check(stack(name))


def test_a_reservation_of_a_node_group_is_not_karpenters() -> None:
    reserved = {"machine": "p5.48xlarge", "capacity": ["reserved"], "aws": {"reservations": [RESERVATION]}}
    env = aws({**reserved, "nodes": 1}, {"machine": "m6i.xlarge"})
    with pytest.raises(InputError, match="not a reservation of a Karpenter pool; leave it out"):
        Options(reservations_left=((RESERVATION, 0),)).check(env)


def test_karpenter_buys_nothing_that_has_no_price() -> None:
    unpriced = {"machine": "p5e.48xlarge"}
    with pytest.raises(InputError) as caught:
        check_prices(aws({"machine": "m6i.xlarge"}, unpriced), PriceList())
    assert str(caught.value) == (
        "pools[1].machine: p5e.48xlarge has no price in the price list of us-east-1 of 2026-07-20, "
        "and Karpenter chooses machines by price; give one: cost.prices: {p5e.48xlarge: USD per hour}"
    )
    check_prices(aws({**unpriced, "nodes": 1}), PriceList())  # Karpenter does not choose
    check_prices(aws({"gpu": {"models": ["H200"], "count": 8}}), PriceList())  # the other type has a price


def test_all_shipped_stacks_can_be_rehearsed() -> None:
    short = (Shortage("g6e.xlarge", "us-west-2b", "spot"),)
    given = {"aws-prod": Options(shortages=short, reservations_left=((RESERVATION, 1),))}
    for name in ("local", "aws-dev", "aws-prod", "onprem-dev"):
        check_prices(stack(name), price_list(stack(name)))
        given.get(name, Options()).check(stack(name))


def test_the_source_of_prices_is_named() -> None:
    listed = "list prices of us-east-1, 2026-07-20, without volumes"
    spot = aws({"machine": "m6i.xlarge", "capacity": ["spot"]})
    assert price_source(stack("aws-dev"), PriceList()) == listed
    assert price_source(stack("aws-prod"), PriceList()).endswith("; spot at 0.5 of on-demand")
    assert price_source(spot, PriceList()).endswith("; spot at the on-demand price (no cost.spot_factor)")
