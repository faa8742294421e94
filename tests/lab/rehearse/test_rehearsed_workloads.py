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
from lab.rehearse.cloud.market import Shortage
from lab.rehearse.cost_report import check_prices, price_source
from lab.rehearse.options import Options, parse_reservation_left, parse_shortage
from lab.rehearse.workloads import environment
from tests.components.aws_stacks import small
from tests.plan.aws_environments import aws

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


def work(**more: Any) -> dict[str, Any]:
    return {"name": "w", "kind": "deployment", "image": "x:1", **more}


def refused(declared: dict[str, Any], work: dict[str, Any], folder: Path) -> tuple[str, str]:
    """Path, without the folder, and fact of the error for workloads from a file."""
    file = folder / "work.yaml"
    file.write_text(yaml.safe_dump({"workloads": [work]}))
    with pytest.raises(InputError) as caught:
        environment(declared, "Pulumi.lab.yaml", file)
    return caught.value.path.removeprefix(f"{folder}/"), caught.value.fact


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row["fact"])
def test_each_pool_is_named_with_what_it_fails_on(row: dict[str, Any], tmp_path: Path) -> None:
    where = f"work.yaml: workloads[0]{'.' if row['at'] else ''}{row['at']}"
    assert refused(ENVIRONMENT, work(**row["workload"]), tmp_path) == (where, row["fact"])


SIZES = {"name": "t4", "gpu": {"models": ["T4"], "count": [1, 4]}, "elastic": {"max": {"cpu": 640}}}


@pytest.mark.parametrize(
    ("pools", "is_held", "requests", "message"),
    [
        (
            AWS["pools"],
            {"cpu": 63.5, "memory": "450Gi"},
            {"cpu": 65},
            "l40s: cpu, 65 requested of 63.575 cores",
        ),
        ([SIZES], {"count": 4}, {"count": 8}, "t4: nvidia.com/gpu, 8 requested of 4"),
    ],
)
def test_of_an_elastic_pool_every_machine_counts(
    pools: list[Any], is_held: dict[str, Any], requests: dict[str, Any], message: str, tmp_path: Path
) -> None:
    declared, name = {**AWS, "pools": pools}, pools[0]["name"]
    assert environment({**declared, "workloads": [work(pool=name, **is_held)]}, "x").workloads
    _, fact = refused(declared, work(pool=name, **requests), tmp_path)
    assert fact == f"no pool can hold it ({message})"


def test_a_stack_of_gpus_alone_holds_no_workload_that_names_no_pool(tmp_path: Path) -> None:
    _, fact = refused(AWS, work(), tmp_path)
    assert fact.startswith("no pool can hold it (l40s: taint nvidia.com/gpu")


def test_the_own_workloads_are_refused_with_the_path_in_the_stack_file() -> None:
    declared = {**ENVIRONMENT, "workloads": [work(), work(name="b", pool="cpu", cpu=5)]}
    with pytest.raises(
        InputError,
        match=r"^workloads\[1\]\.cpu: no pool can hold it \(cpu: cpu, 5 requested of 3.995 cores\)",
    ):
        environment(declared, "Pulumi.lab.yaml")


def test_a_file_takes_the_place_of_the_own_even_where_those_are_wrong(tmp_path: Path) -> None:
    file = tmp_path / "work.yaml"
    file.write_text("workloads:\n  - {name: other, kind: pod, image: 'x:1'}\n")
    declared = {**ENVIRONMENT, "workloads": [work(pool="nowhere")]}
    assert [item.name for item in environment(declared, "x", file).workloads] == ["other"]
    file.write_text("workloads:\n")
    assert environment(declared, "x", file).workloads == ()


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (None, "No such file or directory"),
        ("- {name: a}\n", "holds no mapping"),
        ("pools: []\nworkloads: []\n", "holds pools, workloads"),
        ("workloads: [\n", "expected the node content"),
        ("workloads: {a: 1}\n", "holds a mapping"),
        ("{1: 2, a: b}\n", "holds 1, a"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_a_file_that_is_none(text: str | bytes | None, fact: str, tmp_path: Path) -> None:
    file = tmp_path / "work.yaml"
    if isinstance(text, str):
        file.write_text(text)
    elif text is not None:
        file.write_bytes(text)
    with pytest.raises(InputError) as caught:
        environment(ENVIRONMENT, "x", file)
    assert fact in caught.value.fact
    assert caught.value.path.startswith(str(file)) or caught.value.path == "workloads"


def test_what_is_wrong_with_the_whole_list_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "work.yaml"
    file.write_text("workloads: 3\n")
    with pytest.raises(InputError) as caught:
        environment(ENVIRONMENT, "Pulumi.lab.yaml", file)
    assert str(caught.value) == f"{file}: workloads: holds the number 3; give a list"


def test_hosts_that_have_joined_no_cluster_can_be_asked_what_they_would_hold(tmp_path: Path) -> None:
    declared = {
        "name": "hosts",
        "cluster": {"kind": "hosts", "driver": {"source": "nvidia", "version": "580.95.05"}},
        "pools": [{"name": "t4", "hosts": ["a"], "gpu": {"models": ["T4"], "count": 1}}],
    }
    file = tmp_path / "work.yaml"
    # Hosts do not declare their size, so no request is too large.
    file.write_text(yaml.safe_dump({"workloads": [work(pool="t4", cpu=500)]}))
    assert environment(declared, "x", file).workloads[0].pool == "t4"
    _, fact = refused(declared, work(pool="t4", count=2), tmp_path)
    assert fact == "no pool can hold it (t4: nvidia.com/gpu, 2 requested of 1)"


def stack(name: str) -> Environment:
    return load(Paths.here().root / f"Pulumi.{name}.yaml")


def test_as_they_are_written() -> None:
    assert parse_shortage("p5.48xlarge") == Shortage("p5.48xlarge")
    assert parse_shortage("*:us-west-2a:spot") == Shortage("*", "us-west-2a", "spot")
    assert parse_reservation_left("cr-1") == ("cr-1", 0)
    assert parse_reservation_left("cr-1=3") == ("cr-1", 3)
    assert str(parse_shortage("p5.48xlarge:*:spot")) == "no capacity for p5.48xlarge (spot)"


@pytest.mark.parametrize(
    ("read", "option", "text"),
    [
        *((parse_shortage, "--short", text) for text in ("", "a:b:spot:d", "a::spot", "a:b:free")),
        *(
            (parse_reservation_left, "--reservation-used", text)
            for text in ("", "=1", "cr-1=many", "cr-1=-1", "cr-1=\u00b2")
        ),
    ],
)
def test_what_is_none(read: Callable[[str], object], option: str, text: str) -> None:
    with pytest.raises(InputError, match=f"^{option}"):
        read(text)


USELESS = (
    ("aws-dev", Options(interrupt_spot=True), "--interrupt-spot: no pool uses spot capacity; leave it out"),
    (
        "aws-dev",
        Options(shortages=(Shortage("g4dn.2xlarge"),)),
        "no Karpenter pool uses this machine; did you",
    ),
    (
        "aws-dev",
        Options(shortages=(Shortage("*", "us-east-1c"),)),
        "--short *:us-east-1c: is not a zone of the stack",
    ),
    (
        "aws-prod",
        Options(reservations_left=(("cr-1", 0),)),
        "is not a reservation of a Karpenter pool; known: cr-0123456789abcdef0",
    ),
)


@pytest.mark.parametrize(("name", "given", "message"), USELESS, ids=[row[2] for row in USELESS])
def test_what_the_stack_has_no_use_for(name: str, given: Options, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        given.check(stack(name))


def test_a_reservation_of_a_node_group_is_not_karpenters() -> None:
    name = "cr-0123456789abcdef0"
    reserved = {"machine": "p5.48xlarge", "capacity": ["reserved"], "aws": {"reservations": [name]}}
    env = aws({**reserved, "nodes": 1}, {"machine": "m6i.xlarge"})
    with pytest.raises(InputError, match="not a reservation of a Karpenter pool; leave it out"):
        Options(reservations_left=((name, 0),)).check(env)


UNPRICED: dict[str, Any] = {"machine": "p5e.48xlarge"}


def test_karpenter_buys_nothing_that_has_no_price() -> None:
    with pytest.raises(InputError) as caught:
        check_prices(aws({"machine": "m6i.xlarge"}, UNPRICED), PriceList())
    assert str(caught.value) == (
        "pools[1].machine: p5e.48xlarge has no price in the price list of us-east-1 of 2026-07-20, "
        "and Karpenter chooses machines by price; give one: cost.prices: {p5e.48xlarge: USD per hour}"
    )
    check_prices(aws({**UNPRICED, "nodes": 1}), PriceList())  # Karpenter does not choose
    check_prices(aws({"gpu": {"models": ["H200"], "count": 8}}), PriceList())  # the other type has a price


def test_the_stacks_here_can_all_be_rehearsed() -> None:
    short = (Shortage("g6e.xlarge", "us-west-2b", "spot"),)
    given = {"aws-prod": Options(shortages=short, reservations_left=(("cr-0123456789abcdef0", 1),))}
    for name in ("local", "aws-dev", "aws-prod", "onprem-dev"):
        check_prices(stack(name), price_list(stack(name)))
        given.get(name, Options()).check(stack(name))


def test_whose_prices_they_are() -> None:
    assert (
        price_source(stack("aws-dev"), PriceList()) == "list prices of us-east-1, 2026-07-20, without volumes"
    )
    assert price_source(stack("aws-prod"), PriceList()).endswith("; spot at 0.5 of on-demand")
    spot = aws({"machine": "m6i.xlarge", "capacity": ["spot"]})
    assert price_source(spot, PriceList()).endswith("; spot at the on-demand price (no cost.spot_factor)")
