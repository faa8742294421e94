from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.model import drivers
from infra.model.errors import InputError
from infra.model.gpu import GPUS, ONLY_ARM64
from tests.config.edits import changed, message

pytestmark = pytest.mark.unit

GOOD = yaml.safe_load((Path(__file__).parent / "good_hosts.yaml").read_text())
ROWS = yaml.safe_load((Path(__file__).parent / "bad_hosts.yaml").read_text())
change = partial(changed, GOOD)


def test_the_good_one_is_good() -> None:
    assert [pool.name for pool in parse(GOOD).pools] == ["a100", "v100", "h100", "cpu"]


@pytest.mark.parametrize("row", ROWS, ids=[row["what"] for row in ROWS])
def test_message(row: dict[str, Any]) -> None:
    assert message(change(row, *row.get("and", ()))) == row["said"]


def test_every_row_has_a_name_of_its_own() -> None:
    assert len({row["what"] for row in ROWS}) == len(ROWS) > 60


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ("1.17.8", []),
        ("1.20.1", []),
        ("1.17.7", ["CVE-2025-23266"]),
        ("1.17.3", ["CVE-2025-23266", "CVE-2025-23359"]),
        ("1.15.0", ["CVE-2024-0132", "CVE-2025-23266", "CVE-2025-23359"]),
    ],
)
def test_an_older_toolkit_is_let_through_by_every_vulnerability_it_has(
    version: str, accepted: list[str]
) -> None:
    edits = [{"at": "cluster/toolkit/version", "put": version}]
    for cve in accepted:
        others = [one for one in accepted if one != cve]
        assert cve in message(change(*edits, {"at": "cluster/acknowledge", "put": others}))
    env = parse(change(*edits, {"at": "cluster/acknowledge", "put": accepted}))
    assert env.resolved()["cluster"]["toolkit"]["version"] == version


def test_nothing_makes_1_18_0_acceptable() -> None:
    every = {"at": "cluster/acknowledge", "put": list(drivers.TOOLKIT_FIXES)}
    assert "overwrites the imports" in message(
        change({"at": "cluster/toolkit/version", "put": "1.18.0"}, every)
    )


@pytest.mark.parametrize("cluster", ["embedded", "existing", "aws"])
@pytest.mark.parametrize(("key", "value"), [("hosts", ["a"]), ("driver", GOOD["cluster"]["driver"])])
def test_other_kinds_refuse_what_is_for_own_hosts(cluster: str, key: str, value: Any) -> None:
    if cluster == "aws":
        mapping = yaml.safe_load((Path(__file__).parent / "good_aws.yaml").read_text())
    else:
        place: dict[str, Any] = {"nodes": 1} if cluster == "embedded" else {"selector": {"a": "b"}}
        kind = {"kind": cluster} if cluster == "embedded" else {"kind": cluster, "kubeconfig": "/k"}
        pool = {"name": "p", "machine": "g4dn.xlarge", **place}
        mapping = {"name": "test", "cluster": kind, "pools": [pool]}
    assert parse(mapping)
    mapping["pools"][0][key] = value
    assert message(mapping) == (
        f"pools[0].{key}: the pool's nodes are not own hosts; leave it out, or use cluster kind hosts"
    )


@pytest.mark.parametrize("gone", ["context", "kubeconfig"])
def test_hosts_that_have_joined_nothing_are_declared_without_a_cluster(gone: str) -> None:
    mapping = change({"at": f"cluster/{gone}", "remove": True})
    if gone == "kubeconfig":
        del mapping["cluster"]["context"], mapping["workloads"]
    assert parse(mapping).has_cluster == (gone == "context")


def test_the_declared_text_says_the_same_again() -> None:
    """Also without GPUs, when no driver or toolkit settings are allowed."""
    for mapping in (
        GOOD,
        {"name": "e", "cluster": {"kind": "hosts"}, "pools": [{"name": "c", "hosts": ["a"]}]},
    ):
        env = parse(mapping)
        assert parse(env.resolved()) == env


def test_a_fingerprint_may_have_its_spaces() -> None:
    spaced = "eb69 3b30 35cd 5710 e231  e123 a4b4 6996 3bf8 63cc"
    mirror = {"url": "https://m.example", "suite": "./", "key": "k.asc", "fingerprint": spaced}
    env = parse(change({"at": "cluster/driver/repository", "put": mirror}))
    found = env.resolved()["cluster"]["driver"]["repository"]["fingerprint"]
    assert found == "EB693B3035CD5710E231E123A4B469963BF863CC"


def test_roles_install_nothing_on_arm64() -> None:
    pool = {"name": "p", "hosts": ["h"], "gpu": {"models": ["GH200"], "count": 1}}
    said = message({"name": "e", "cluster": {"kind": "hosts"}, "pools": [pool]})
    assert said == (
        "pools[0].gpu: GH200 is in arm64 hosts, and the roles install packages for x86_64; "
        "use cluster kind existing"
    )


@pytest.mark.parametrize("name", [name for name in GPUS if name not in ONLY_ARM64])
def test_a_gpu_takes_a_run_of_branches_without_a_hole(name: str) -> None:
    """From its first branch to its last one, which only Volta has; CUDA and MIG are not considered."""
    taken, refused = [], []
    for branch in drivers.BRANCHES:
        driver = {"source": "nvidia", "version": f"{branch}.999.99"}
        pool = {"name": "p", "hosts": ["h"], "gpu": {"models": [name], "count": 1}}
        try:
            parse({"name": "e", "cluster": {"kind": "hosts", "driver": driver}, "pools": [pool]})
        except InputError as error:
            refused.append(error)
        else:
            taken.append(branch)
    assert all(error.path == "cluster.driver.version" and name in error.fact for error in refused)
    first, last = drivers.BRANCHES.index(taken[0]), drivers.BRANCHES.index(taken[-1])
    assert tuple(taken) == drivers.BRANCHES[first : last + 1]
    assert taken[-1] == (580 if GPUS[name].family == "volta" else drivers.BRANCHES[-1])
    assert (taken[0] >= 570) == (GPUS[name].family == "blackwell")
