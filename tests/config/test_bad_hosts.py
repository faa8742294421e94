from __future__ import annotations

from functools import partial

import pytest

from infra.config import parse
from infra.model.base.errors import InputError
from infra.model.gpu import drivers
from infra.model.gpu.models import GPUS, ONLY_ARM64
from tests.config import tables
from tests.config.edits import changed, message

pytestmark = pytest.mark.unit

GOOD = tables.GOOD["hosts"]
change = partial(changed, GOOD)


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ("1.19.1", []),
        ("1.20.1", []),
        ("1.17.8", ["CVE-2026-24260"]),
        ("1.17.7", ["CVE-2025-23266", "CVE-2026-24260"]),
        ("1.17.3", ["CVE-2025-23266", "CVE-2025-23359", "CVE-2026-24260"]),
        ("1.15.0", ["CVE-2024-0132", "CVE-2025-23266", "CVE-2025-23359", "CVE-2026-24260"]),
    ],
)
def test_an_older_toolkit_is_let_through_by_every_vulnerability_it_has(
    version: str, accepted: list[str]
) -> None:
    edits = [{"at": "cluster/toolkit/version", "put": version}]
    for cve in accepted:
        others = [item for item in accepted if item != cve]
        assert cve in message(change(*edits, {"at": "cluster/acknowledge", "put": others}))
    env = parse(change(*edits, {"at": "cluster/acknowledge", "put": accepted}))
    assert env.resolved()["cluster"]["toolkit"]["version"] == version


def test_nothing_makes_1_18_0_acceptable() -> None:
    every = {"at": "cluster/acknowledge", "put": list(drivers.TOOLKIT_FIXES)}
    assert "overwrites the imports" in message(
        change({"at": "cluster/toolkit/version", "put": "1.18.0"}, every)
    )


@pytest.mark.parametrize("gone", ["context", "kubeconfig"])
def test_hosts_that_have_joined_nothing_are_declared_without_a_cluster(gone: str) -> None:
    mapping = change({"at": f"cluster/{gone}", "remove": True})
    if gone == "kubeconfig":
        del mapping["cluster"]["context"], mapping["workloads"]
    assert parse(mapping).has_cluster == (gone == "context")


def test_a_fingerprint_may_have_its_spaces() -> None:
    spaced = "eb69 3b30 35cd 5710 e231  e123 a4b4 6996 3bf8 63cc"
    mirror = {"url": "https://m.example", "suite": "./", "key": "k.asc", "fingerprint": spaced}
    env = parse(change({"at": "cluster/driver/repository", "put": mirror}))
    found = env.resolved()["cluster"]["driver"]["repository"]["fingerprint"]
    assert found == "EB693B3035CD5710E231E123A4B469963BF863CC"


def test_roles_install_nothing_on_arm64() -> None:
    pool = {"name": "p", "hosts": ["h"], "gpu": {"models": ["GH200"], "count": 1}}
    text = message({"name": "e", "cluster": {"kind": "hosts"}, "pools": [pool]})
    assert text == (
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
