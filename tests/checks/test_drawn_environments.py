"""Any valid environment: NVIDIA's parsers accept its output, and simulated nodes offer what was planned.

The simulator shares no code with the plan; a broken promise is an error in one of the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from infra.config import parse
from infra.model.base.errors import InputError
from infra.model.environment import Environment
from infra.model.gpu.machines import Machine
from infra.model.gpu.models import GPUS
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.plan import karpenter, sharing
from tests.build.edits import changed
from tests.checks import drawn, everything, simulated
from tests.checks.judges import JsonLines, check_config

pytestmark = pytest.mark.tools

# The same examples every time, so that a result depends on the change only.
often = settings(
    max_examples=250, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
seldom = settings(often, max_examples=100)


def nodes(env: Environment, pool: Pool) -> list[Machine]:
    if env.cluster.kind == "aws":
        return list({machine.gpus: machine for machine in pool.machines}.values())
    return [pool.node_machine] if pool.node_machine else []


def overlay(env: Environment, pool: Pool, gpus: int) -> dict[str, str]:
    """The capacity that the NodeOverlay gives Karpenter for such a node; empty if none is needed."""
    found = {
        item["metadata"]["name"]: item["spec"]["capacity"] for item in karpenter.node_overlays(env, pool)
    }
    return found.get(f"{pool.name}-{gpus}-gpu", {})


@often
@given(mapping=drawn.environments())
def test_a_simulated_node_offers_what_was_planned(types: JsonLines, mapping: drawn.Mapping) -> None:
    env = parse(mapping)
    site = simulated.SimulatedOperator(env, types)
    for pool in env.pools:
        event(pool.sharing.kind)
        for machine in nodes(env, pool):
            world = site.settled(pool, machine)
            assert simulated.offers(world) == allocatable.resources(pool, machine.gpus)
            promised = {name: int(n) for name, n in overlay(env, pool, machine.gpus).items() if n != "0"}
            assert promised in ({}, simulated.offers(world)), (
                "what Karpenter is told before the node is there"
            )
            for resource, count in simulated.offers(world).items():
                refused = simulated.refuses_two(world, resource)
                assert count < 2 or refused is allocatable.one_per_pod(pool, resource), (pool.name, resource)
            products = allocatable.products(pool)
            assert products or pool.by_claim
            if products:
                assert simulated.discovered(world)["nvidia.com/gpu.product"] in products


def test_a_promise_that_is_not_kept_is_seen(types: JsonLines) -> None:
    def shared(replicas: int) -> Environment:
        return everything.embedded(
            {**everything.T4, "sharing": {"kind": "time_slicing", "replicas": replicas}}
        )

    planned, other = shared(4), shared(5)
    (machine,) = nodes(planned, planned.pools[0])
    found = simulated.offers(simulated.SimulatedOperator(planned, types).settled(planned.pools[0], machine))
    assert found == allocatable.resources(planned.pools[0]) != allocatable.resources(other.pools[0])


@seldom
@given(mapping=drawn.environments())
def test_mig_parted_takes_every_layout(mig_parted: Path, mapping: drawn.Mapping) -> None:
    config_map = sharing.mig_parted_config_map(parse(mapping))
    if config_map is None:
        return
    text = config_map["data"]["config.yaml"]
    for name in yaml.safe_load(text)["mig-configs"]:
        found = check_config(mig_parted, text, name)
        assert found.returncode == 0, found.stderr


@often
@given(mapping=drawn.environments())
def test_what_is_resolved_means_the_same(mapping: drawn.Mapping) -> None:
    env = parse(mapping)
    assert parse(env.resolved()) == env


Place = tuple[str | int, ...]

_NONSENSE = "no such thing!"
_OTHER_TYPES: dict[type, tuple[Any, ...]] = {
    str: (7, True, {"a": 1}, ["a"], "", _NONSENSE),
    int: ("x", True, {"a": 1}, ["a"], -1, 0, 1.5),
    bool: ("x", 7, {"a": 1}, ["a"]),
    dict: ("x", 7, True, ["a"]),
    list: ("x", 7, True, {"a": 1}, [{"a": [1]}], [None]),
}
_COUNTS = ("nodes", "replicas", "parallelism", "spare")
"""Numbers that may be 0."""
_FREE = ("layout", "max", "images", "labels")
"""Mappings with user-defined keys: other tests check unknown ones."""


@dataclass(frozen=True)
class Corruption:
    mapping: dict[str, Any]
    path: Place
    what: str

    @property
    def at(self) -> str:
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return text.removeprefix(".")

    @property
    def pool(self) -> str | None:
        return f"pools[{self.path[1]}]" if self.path[0] == "pools" and len(self.path) > 1 else None


def fields_of(value: Any, path: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every field with its value, blocks before their fields."""
    if path:
        yield path, value
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from fields_of(inner, (*path, key))


def with_value(mapping: dict[str, Any], path: Place, value: Any) -> dict[str, Any]:
    return changed(mapping, {"at": "/".join(map(str, path)), "put": value})


@st.composite
def corruptions(draw: st.DrawFn, mapping: dict[str, Any]) -> Corruption:
    where = list(fields_of(mapping))
    path, value = draw(
        st.sampled_from([item for item in where if item[0][-1] != "value"])
    )  # a taint's value may be ""
    what = draw(st.sampled_from(["another value", "an unknown key"]))
    if what == "an unknown key":
        blocks = [entry for entry, inner in where if isinstance(inner, dict) and entry[-1] not in _FREE]
        path = (*draw(st.sampled_from([(), *blocks])), "nonsense")
        return Corruption(with_value(mapping, path, 1), path, what)
    others = _OTHER_TYPES[type(value)]
    other = draw(st.sampled_from([item for item in others if item != 0 or path[-1] not in _COUNTS]))
    return Corruption(with_value(mapping, path, other), path, f"{value!r} became {other!r}")


@settings(often, max_examples=300)
@given(data=st.data())
def test_a_corrupted_field_is_named(data: st.DataObject) -> None:
    """By its own path, by that of a field in it, or by its pool's if several fields conflict."""
    bad = data.draw(corruptions(data.draw(drawn.environments())))
    with pytest.raises(InputError) as caught:
        parse(bad.mapping)
    error = caught.value
    inside = error.path == bad.at or error.path.startswith((f"{bad.at}.", f"{bad.at}["))
    event("its own path" if error.path == bad.at else "inside it" if inside else "its pool")
    assert inside or (bad.pool and error.path.startswith(bad.pool)), f"{bad.at}, {bad.what}: {error}"
    assert error.fact
    assert error.remedy


def test_everything_is_drawn() -> None:
    """The strategy reaches every kind of sharing, with all its options, on most GPU models."""
    seen: Counter[str] = Counter()
    models: set[str] = set()

    @settings(often, max_examples=300, database=None)
    @given(mapping=drawn.environments())
    def look(mapping: drawn.Mapping) -> None:
        for pool in mapping["pools"]:
            models.add(drawn.first_model(pool))
            seen.update([f"{mapping['cluster']['kind']} {pool['sharing']['kind']}"])
            seen.update(pool.keys() | pool["sharing"].keys())
            seen.update(["several counts"] if isinstance(pool.get("gpu", {}).get("count"), list) else [])

    look()
    kinds = ("exclusive", "time_slicing", "mps", "mig", "dra")
    assert {f"{where} {kind}" for where in ("aws", "embedded", "openstack") for kind in kinds} <= set(seen)
    beside = (
        *("devices", "layouts", "share", "name", "strategy", "rename"),
        *("trust", "elastic", "several counts"),
    )
    assert not {item for item in beside if seen[item] < 10}
    assert len(models) > len(GPUS) / 2
