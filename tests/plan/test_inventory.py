"""The inventory: groups, each host's variables, which match the roles' argument_specs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.plan.inventory import hosts_of, inventory, key_paths
from tests.build.edits import changed
from tests.config import tables
from tests.plan.fields import HOSTS, MIRROR

pytestmark = pytest.mark.unit

GOOD = tables.GOOD["hosts"]
ALONE = [{"at": at, "remove": True} for at in ("cluster/kubeconfig", "cluster/context", "workloads")]


def inventory_of(mapping: dict[str, Any]) -> dict[str, Any]:
    env = parse(mapping)
    return inventory(env, {path: f"KEY of {path}" for _, path in key_paths(env)})


def variables_of(mapping: dict[str, Any], host: str) -> dict[str, Any]:
    variables: dict[str, Any] = inventory_of(mapping)["_meta"]["hostvars"][host]
    return variables


def test_groups_are_those_of_kubernetes_of_gpus_and_of_pools() -> None:
    listed = inventory_of(GOOD)
    assert {name: group["hosts"] for name, group in listed.items() if "hosts" in group} == {
        "kube_control_plane": ["cp-1"],
        "kube_node": ["cpu-1", "gpu-1", "gpu-2", "gpu-3", "gpu-4"],
        "gpu": ["gpu-1", "gpu-2", "gpu-3", "gpu-4"],
        "pool_a100": ["gpu-1", "gpu-2"],
        "pool_v100": ["gpu-3"],
        "pool_h100": ["gpu-4"],
        "pool_cpu": ["cpu-1"],
    }
    assert set(listed["all"]["children"]) == {*listed, "ungrouped"} - {"all", "_meta"}
    assert hosts_of(listed) == ["cp-1", "cpu-1", "gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    assert hosts_of(listed, "pool_a100") == ["gpu-1", "gpu-2"]
    assert hosts_of(listed, "pool_none") == []


def test_a_distribution_and_what_the_hosts_keep_are_told_to_the_roles() -> None:
    """Nothing of them is in the inventory of hosts that declare neither."""
    dgx = {"source": "host", "version": "580.95.05"}
    edits = {"at": "cluster/distribution", "put": "rke2"}, {"at": "cluster/firewall", "put": "host"}
    found = variables_of(changed(GOOD, *edits, {"at": "cluster/driver", "put": dgx}), "gpu-1")
    assert (found["gpuform_distribution"], found["host_prep_firewall"]) == ("rke2", False)
    assert found["nvidia_driver_source"] == "host"
    assert not {"gpuform_distribution", "host_prep_firewall"} & variables_of(GOOD, "gpu-1").keys()
    assert "nvidia_driver_modules" not in found, "whichever they are"
    modes = {
        version: variables_of(
            changed(GOOD, edits[0], {"at": "cluster/runtime_version", "put": version}), "gpu-1"
        )
        for version in ("1.7", "2.0")
    }
    assert [one["nvidia_container_toolkit_mode"] for one in modes.values()] == ["runtime", "cdi"]


def test_a_pools_dashes_become_underscores() -> None:
    mapping = changed(HOSTS, {"at": "pools/2/name", "put": "cpu-of-two"})
    assert inventory_of(mapping)["pool_cpu_of_two"] == {"hosts": ["cpu-1"]}


def test_how_a_host_is_reached() -> None:
    assert variables_of(GOOD, "gpu-2")["ansible_port"] == 2222
    assert variables_of(GOOD, "gpu-1")["ansible_host"] == "gpu-1"
    edits = {"at": "cluster/user", "put": "root"}, {"at": "cluster/private_key", "remove": True}
    root = variables_of(changed(GOOD, *edits), "gpu-1")
    assert root["ansible_become"] is False
    assert "ansible_ssh_private_key_file" not in root


def test_the_keys_of_hosts_are_always_checked() -> None:
    """tests/golden has them without a file of their own."""
    text = variables_of(GOOD, "gpu-1")["ansible_ssh_common_args"]
    assert text == "-o UserKnownHostsFile=/etc/ssh/ssh_known_hosts -o StrictHostKeyChecking=yes"


def test_the_driver_is_the_pools_or_the_clusters() -> None:
    first, fourth = variables_of(GOOD, "gpu-1"), variables_of(GOOD, "gpu-4")
    assert (first["nvidia_driver_version"], first["nvidia_driver_branch"]) == ("580.178.04", "580")
    assert (fourth["nvidia_driver_version"], fourth["nvidia_driver_branch"]) == ("570.133.20", "570")
    assert (first["nvidia_driver_product"], first["nvidia_driver_count"]) == ("NVIDIA A100-PCIE-40GB", 2)
    others = ("nvidia_driver_modules", "nvidia_driver_fabricmanager")
    found = [[variables_of(GOOD, host)[key] for key in others] for host in ("gpu-1", "gpu-3", "gpu-4")]
    assert found == [["open", False], ["proprietary", False], ["open", True]]


def test_a_repository_comes_with_the_text_of_its_key() -> None:
    first = variables_of(HOSTS, "gpu-1")
    assert first["nvidia_driver_repository"] == {**MIRROR, "key": "KEY of mirror.asc"}
    assert first["nvidia_container_toolkit_repository"] == {**MIRROR, "key": "KEY of mirror.asc"}
    second = variables_of(HOSTS, "gpu-2")
    assert second["nvidia_driver_repository"] == {}
    assert second["nvidia_driver_runfile"] == {"url": "https://mirror.example/a.run", "sha256": "a" * 64}
    assert list(key_paths(parse(HOSTS))) == [
        ("cluster.toolkit.repository.key", "mirror.asc"),
        ("cluster.driver.repository.key", "mirror.asc"),
    ]


def test_mig_is_the_operators_in_a_cluster_and_the_roles_outside() -> None:
    joined = variables_of(GOOD, "gpu-1")
    assert (joined["nvidia_mig_layout"], joined["nvidia_mig_config"]) == ("", {})
    alone = changed(GOOD, *ALONE)
    cut = variables_of(alone, "gpu-1")
    assert cut["nvidia_mig_layout"] == "all-1g.5gb"
    assert cut["nvidia_mig_config"] == {
        "version": "v1",
        "mig-configs": {
            "all-1g.5gb": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}],
            "all-disabled": [{"devices": "all", "mig-enabled": False}],
        },
    }
    assert variables_of(alone, "gpu-4")["nvidia_mig_layout"] == "all-disabled", "it may have been cut before"
    assert variables_of(alone, "gpu-3")["nvidia_mig_layout"] == "", "Volta has no MIG"


def test_the_order_of_hosts_and_pools_changes_no_byte() -> None:
    mapping = changed(GOOD)
    mapping["pools"].reverse()
    mapping["pools"][3]["hosts"].reverse()
    assert inventory_of(mapping) == inventory_of(GOOD)


ROLES = Path(__file__).resolve().parents[2] / "ansible" / "roles"
TYPES = {"str": str, "path": str, "int": int, "bool": bool, "dict": dict, "list": list}


def options(role: Path) -> dict[str, Any]:
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    found: dict[str, Any] = specs["main"].get("options", {})
    return found


def variables() -> Iterator[tuple[str, str, Any]]:
    for mapping in (HOSTS, changed(HOSTS, ALONE[0])):
        for host, values in inventory_of(mapping)["_meta"]["hostvars"].items():
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
            required = {key for key, item in option["options"].items() if item.get("required")}
            assert required <= set(value), f"{host}: {name} has {sorted(value)}"
        seen.add(role.name)
    driver = {"nvidia_driver", "nvidia_container_toolkit", "nvidia_mig", "cuda_toolkit"}
    assert seen == {"validate_inventory", *driver}


def test_what_a_role_must_have_the_inventory_gives() -> None:
    """On a host with GPUs; roles for other hosts have no required options."""
    given = {name for host, name, _ in variables() if host == "gpu-1"}
    for role in sorted(ROLES.iterdir()):
        if role.name == "signed_repository":
            continue  # other roles set its options
        required = {name for name, item in options(role).items() if item.get("required")}
        assert required <= given, f"{role.name} needs {sorted(required - given)}"


@pytest.mark.parametrize(
    ("declared", "given"),
    [("~/labs", "~/labs"), ("/k", "/k"), ("kubeconfigs/labs", f"{Path.cwd()}/kubeconfigs/labs")],
)
def test_ansible_finds_the_kubeconfig_from_any_folder(declared: str, given: str) -> None:
    variables = variables_of(changed(HOSTS, {"at": "cluster/kubeconfig", "put": declared}), "gpu-1")
    assert [variables[key] for key in ("gpuform_kubeconfig", "nvidia_driver_kubeconfig")] == [given, given]
