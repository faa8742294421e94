"""A node that Magnum replaces, step by step: with the real client of its API, against a small stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuform.preflight.openstack import account
from infra.incluster.rebuilding import magnum_api
from tests.incluster.magnum_stub import MagnumStub
from tests.incluster.played_rebuild import LARGER, SERVER, SMALLER, Json, Magnum, Played, pod

pytestmark = pytest.mark.unit


@pytest.fixture
def stub() -> Iterator[MagnumStub]:
    found = MagnumStub(**{"gpu-a100": 3})
    yield found
    found.close()


@pytest.fixture
def folder(stub: MagnumStub, tmp_path: Path) -> Path:
    return stub.secret(tmp_path / "openstack")


def test_the_pods_go_then_the_server_and_the_group_gets_another(stub: MagnumStub, folder: Path) -> None:
    daemons = [
        pod("plugin", "DaemonSet"),
        pod("etcd", None, annotations={"kubernetes.io/config.mirror": "x"}),
    ]
    ended = {**pod("job", "Job"), "status": {"phase": "Succeeded"}}
    played = Played(stub, folder, pod("a"), *daemons, ended)
    played.look()
    assert played.cluster.asked == ["a"]
    assert stub.resizes == []
    played.ends()
    assert stub.resizes == [SMALLER, LARGER]
    assert stub.groups["gpu-a100"]["node_count"] == 3
    assert played.cluster.asked == ["a"]
    assert not played.failed
    assert played.said[-1] == "gpu-a100 has 3 nodes again, one of them new"
    assert f"Magnum removes server {SERVER}: gpu-a100 from 3 to 2 nodes" in played.said
    assert stub.tokens == 1


@pytest.mark.parametrize("killed", range(12))
@pytest.mark.parametrize(("least", "size"), [(0, 3), (3, 3), (0, 1)])
def test_killed_at_any_step_it_ends_the_same(
    stub: MagnumStub, folder: Path, killed: int, least: int, size: int
) -> None:
    stub.groups["gpu-a100"] |= {"min_node_count": least, "node_count": size}
    played = Played(stub, folder, pod("a"))
    for _ in range(killed):
        if played.note is not None:
            played.look()
    if played.note is not None:
        played.look(forget=True)
    played.ends()
    assert stub.groups["gpu-a100"]["node_count"] == size
    assert played.node is None
    assert not played.failed
    # What was asked for twice was the same: no other server ever goes, and the group is never too large.
    assert {tuple(servers) for _, _, servers in stub.resizes} <= {(SERVER,), ()}
    assert max(count for _, count, _ in stub.resizes) == size
    assert min(count for _, count, _ in stub.resizes) == max(least, size - 1)


def test_a_group_that_may_not_shrink_keeps_its_size_in_one_call(stub: MagnumStub, folder: Path) -> None:
    stub.groups["gpu-a100"]["min_node_count"] = 3
    played = Played(stub, folder)
    played.ends()
    assert stub.resizes == [("gpu-a100", 3, [SERVER])]
    assert played.said[-1] == f"server {SERVER} is gone, and another has come"


def test_where_an_autoscaler_sizes_the_group_nothing_is_added(stub: MagnumStub, folder: Path) -> None:
    stub.groups["gpu-a100"]["min_node_count"] = 1
    played = Played(stub, folder, elastic=True)
    played.ends()
    assert stub.resizes == [SMALLER]
    assert played.said[-1].endswith("its autoscaler brings another if pods need it")


def test_a_budget_is_waited_for_and_at_last_a_person_is_asked(stub: MagnumStub, folder: Path) -> None:
    played = Played(stub, folder, pod("a"), since=1000.0)
    played.cluster.held = True
    played.look()
    played.look()
    assert played.cluster.asked == ["a", "a"]
    assert played.said[-1] == "waits for its pods to go: a/a"
    played.look(passed=4000)
    assert (played.note, played.failed) == (None, True)
    assert played.said[-1] == "not replaced by Magnum: its pods are still there after 3600 s: a/a"
    assert stub.resizes == []


@pytest.mark.parametrize(
    ("pods", "note", "secret", "said"),
    [
        ([pod("a"), pod("b", None)], {}, {}, "no controller would bring back a/b"),
        ([], {}, {"auth_url": ""}, "no credential: its Secret is not there, or has no auth_url"),
        ([], {"group": "other"}, {}, "Magnum: 404 Nodegroup other could not be found."),
        (
            [],
            {},
            {"application_credential_secret": "x"},
            "keystone: 401 Could not find Application Credential",
        ),
        (
            [],
            {},
            {"region_name": "mars"},
            "the credential's catalog has no public endpoint of Magnum in region",
        ),
        ([], {}, {"auth_url": "file:///etc"}, "'file:///etc/v3/auth/tokens' is no address of HTTP"),
    ],
)
def test_what_cannot_be_is_a_persons_and_no_pod_is_touched_for_it(
    stub: MagnumStub,
    folder: Path,
    pods: list[Json],
    note: Json,
    secret: dict[str, str],
    said: str,
) -> None:
    stub.secret(folder, **secret)
    played = Played(stub, folder, *pods, **note)
    played.ends()
    assert played.failed
    assert played.said[-1].startswith(f"not replaced by Magnum: {said}")
    assert stub.resizes == []
    assert played.cluster.asked == []


def test_a_node_that_was_let_back_in_or_is_gone_is_left(stub: MagnumStub, folder: Path) -> None:
    for node, said in [
        ({"metadata": {"name": "n", "uid": "u"}}, "the node was let back in"),
        (None, "the node is gone, whoever took it away"),
    ]:
        played = Played(stub, folder, pod("a"))
        played.node = node
        played.look()
        assert (played.note, played.failed, played.said) == (None, False, [said])
    assert stub.resizes == []


def test_a_resize_that_fails_is_asked_for_again_and_then_a_persons(stub: MagnumStub, folder: Path) -> None:
    stub.fails = 1
    played = Played(stub, folder)
    played.ends()
    assert stub.resizes == [SMALLER, SMALLER, LARGER]
    assert not played.failed
    stub.resizes.clear()
    stub.fails = 9
    played = Played(stub, folder)
    played.ends()
    assert played.failed
    assert stub.resizes == [SMALLER] * 3
    assert played.said[-1] == (
        "not replaced by Magnum: node group gpu-a100 is UPDATE_FAILED: No valid host was found.; look at "
        f"node group gpu-a100: it was to have 3 nodes in the end, and lose server {SERVER}"
    )


@pytest.mark.parametrize("kind", account._MAGNUM)
def test_magnum_is_found_by_every_name_that_the_preflight_lets_pass(folder: Path, kind: str) -> None:
    endpoint = {"interface": "public", "region_id": "cern", "url": "https://magnum.example.org"}
    found = Magnum(folder, "research")._of([{"type": kind, "endpoints": [endpoint]}])
    assert found == "https://magnum.example.org/v1"


def test_a_refusal_is_repeated_before_it_counts_and_an_outage_raises(stub: MagnumStub, folder: Path) -> None:
    stub.refuses = [(409, "Cluster is being updated"), (503, "later")]
    played = Played(stub, folder)
    for _ in range(3):
        played.look()
    assert played.said[-1] == "Magnum: 409 Cluster is being updated"
    with pytest.raises(OSError, match="Magnum: 503 later"):
        played.look()
    played.ends()
    assert stub.resizes == [SMALLER, LARGER]


def test_who_resizes_meanwhile_decides(stub: MagnumStub, folder: Path) -> None:
    played = Played(stub, folder)
    while SMALLER not in stub.resizes:
        played.look()
    while played.note and played.note["stage"] != "refill":
        played.look()
    stub.groups["gpu-a100"]["node_count"] = 5
    played.ends()
    assert stub.resizes == [SMALLER]
    assert played.said[-1] == "somebody else has given node group gpu-a100 5 nodes, and that stays"


def test_a_call_that_never_shows_is_made_again(stub: MagnumStub, folder: Path) -> None:
    """The API has taken it, and its conductor has died before it did anything."""
    played = Played(stub, folder)
    while SMALLER not in stub.resizes:
        played.look()
    stub.groups["gpu-a100"] |= {"node_count": 3, "status": "CREATE_COMPLETE"}
    stub._under_way.clear()
    played.look()
    assert stub.resizes == [SMALLER]
    played.look(passed=200)
    assert stub.resizes == [SMALLER, SMALLER]
    played.ends()
    assert stub.resizes == [SMALLER, SMALLER, LARGER]


def test_a_token_that_has_ended_is_replaced(stub: MagnumStub, folder: Path) -> None:
    cloud = Magnum(folder, "research")
    assert cloud.group("gpu-a100")["node_count"] == 3
    stub.valid = set()
    assert cloud.group("gpu-a100")["node_count"] == 3
    assert stub.tokens == 2


def test_what_lasts_too_long_is_a_persons(stub: MagnumStub, folder: Path) -> None:
    stub.slow = 10_000
    played = Played(stub, folder)
    while SMALLER not in stub.resizes:
        played.look()
    played.look(passed=8000)
    assert played.failed
    assert "after 7200 s node group gpu-a100 is UPDATE_IN_PROGRESS; look at node group" in played.said[-1]


def test_nobody_there_is_trouble(folder: Path, stub: MagnumStub) -> None:
    stub.secret(folder, auth_url="http://127.0.0.1:1/v3")
    with pytest.raises(magnum_api.TROUBLE):
        Magnum(folder, "research").group("gpu-a100")
