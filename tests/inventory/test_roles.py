"""The inventory's host variables match the roles' argument_specs, by name and type."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.plan.inventory import inventory, key_paths
from tests.plan.hosts_fields import HOSTS

pytestmark = pytest.mark.unit

ROLES = Path(__file__).resolve().parents[2] / "ansible" / "roles"
TYPES = {"str": str, "path": str, "int": int, "bool": bool, "dict": dict, "list": list}


def alone() -> dict[str, Any]:
    mapping: dict[str, Any] = copy.deepcopy(HOSTS)
    del mapping["cluster"]["kubeconfig"]
    return mapping


def options(role: Path) -> dict[str, Any]:
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    found: dict[str, Any] = specs["main"].get("options", {})
    return found


def variables() -> Iterator[tuple[str, str, Any]]:
    for mapping in (HOSTS, alone()):
        env = parse(mapping)
        hosts = inventory(env, dict.fromkeys((path for _, path in key_paths(env)), "KEY"))["_meta"][
            "hostvars"
        ]
        for host, values in hosts.items():
            yield from ((host, name, value) for name, value in values.items())


def role_of(name: str) -> Path | None:
    """The role with a name that prefixes the variable; the longest name wins."""
    fitting = [role for role in ROLES.iterdir() if name.startswith(f"{role.name}_")]
    return max(fitting, key=lambda role: len(role.name), default=None)


def test_every_role_variable_is_in_its_roles_specs_with_its_type() -> None:
    seen = set()
    for host, name, value in variables():
        role = role_of(name)
        if role is None:
            assert name.startswith(("ansible_", "gpuform_")), f"{name} belongs to no role"
            continue
        option = options(role).get(name)
        assert option, f"{role.name} takes no {name}"
        assert isinstance(value, TYPES[option.get("type", "str")]), f"{host}: {name} is {value!r}"
        assert not isinstance(value, bool) or option["type"] == "bool"
        if option.get("choices") and value:
            assert value in option["choices"], f"{host}: {name} is {value!r}"
        if option.get("options") and value:
            assert set(value) <= set(option["options"]), f"{host}: {name} has {sorted(value)}"
            required = {key for key, one in option["options"].items() if one.get("required")}
            assert required <= set(value), f"{host}: {name} has {sorted(value)}"
        seen.add(role.name)
    assert {
        "validate_inventory",
        "nvidia_driver",
        "nvidia_container_toolkit",
        "nvidia_mig",
        "cuda_toolkit",
    } == seen


def test_what_a_role_must_have_the_inventory_gives() -> None:
    """On a host with GPUs; roles for other hosts have no required options."""
    given = {name for host, name, _ in variables() if host == "gpu-1"}
    for role in sorted(ROLES.iterdir()):
        if role.name == "signed_repository":
            continue  # other roles set its options
        required = {name for name, one in options(role).items() if one.get("required")}
        assert required <= given, f"{role.name} needs {sorted(required - given)}"
