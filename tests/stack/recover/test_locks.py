"""Locks on a stack: their owners, and that only locks of ended processes are removed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuform.checkout.errors import Failure, InputError
from gpuform.clients.aws import api
from gpuform.engine import locks as engine_locks
from gpuform.engine.locks import parse_owner
from gpuform.stack.recover import locks
from gpuform.stack.recover.locks import Store
from tests.waiting import until

pytestmark = pytest.mark.tools

FOLDER = ".pulumi/locks/organization/tried/prod"
Write = Callable[..., str]


def content(pid: int, host: str | None = None) -> str:
    owner = {"pid": pid, "username": "ada", "hostname": host or socket.gethostname()}
    return json.dumps({**owner, "timestamp": "2026-01-02T03:04:05.678901234Z"})


@pytest.fixture(scope="module")
def gone() -> int:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return process.pid


@pytest.fixture(scope="module")
def alive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    program = tmp_path_factory.mktemp("alive") / "pulumi"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(program), "60"])
    until(Path(f"/proc/{process.pid}/cmdline").read_bytes)  # it has none during exec
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture(params=["file", "s3"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Store, Write]:
    """A backend of each kind, and a function that writes a lock into it and returns its key."""
    monkeypatch.setattr(engine_locks, "_EXIT_WAIT_S", 0.0)  # tests/engine/test_interrupted.py waits for it
    if request.param == "file":

        def write(text: str, name: str = "0a1b.json") -> str:
            file = tmp_path / FOLDER / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            return str(file)

        return locks.open_store(f"file://{tmp_path}", "tried", "prod"), write
    request.getfixturevalue("moto")
    s3 = api.create_client("s3", "us-west-2")
    s3.create_bucket(Bucket="states", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    for other in (f"of/{FOLDER}-2/1.json", f"{FOLDER}/1.json"):  # of other stacks
        s3.put_object(Bucket="states", Key=other, Body=content(1, "elsewhere").encode())

    def put(text: str, name: str = "0a1b.json") -> str:
        s3.put_object(Bucket="states", Key=f"of/{FOLDER}/{name}", Body=text.encode())
        return f"of/{FOLDER}/{name}"

    return locks.open_store("s3://states/of?region=us-west-2", "tried", "prod"), put


def test_the_lock_of_the_gone_is_removed_and_its_owner_named(place: tuple[Store, Write], gone: int) -> None:
    store, write = place
    key = write(content(gone))
    (planned,) = locks.require_removable("prod", store.list_locks(), [])
    assert (planned.key, planned.state) == (key, "gone")
    owner = f"process {gone} of ada on host {socket.gethostname()} since 2026-01-02 03:04:05 UTC"
    assert locks.remove_locks(store, [planned], "prod") == [f"removed the lock on stack prod of {owner}"]
    assert store.list_locks() == []
    assert locks.remove_locks(store, [planned], "prod") == []


def test_the_time_of_a_lock_is_told_in_utc_wherever_it_was_written() -> None:
    """The engine writes local time; users compare it to decide whether the owner has ended."""
    text = content(12, "ci-7").replace("678901234Z", "678901234+02:00")
    assert (owner := parse_owner(text)) is not None
    assert owner.description == "process 12 of ada on host ci-7 since 2026-01-02 01:04:05 UTC"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://states/of?endpoint=minio.example:9000", "set AWS_ENDPOINT_URL_S3"),
        ("s3://states/of?region=us-west-2&profile=states", "set AWS_ENDPOINT_URL_S3"),
        ("gs://bucket/prefix", "locks of a gs:// backend cannot be read .*pulumi cancel"),
    ],
)
def test_a_backend_that_would_be_searched_elsewhere_is_refused(address: str, message: str) -> None:
    """Without its locks a stack would pass as unlocked."""
    with pytest.raises(InputError, match=f"state.backend: .*{message}"):
        locks.open_store(address, "tried", "prod")


def test_the_lock_of_the_living_is_refused_whatever_is_said(place: tuple[Store, Write], alive: int) -> None:
    store, write = place
    write(content(alive))
    with pytest.raises(Failure, match=rf"stack prod: is locked by process {alive} of ada") as caught:
        locks.require_removable("prod", store.list_locks(), [])
    assert f"kill -INT {alive}" in str(caught.value)
    with pytest.raises(InputError, match="holds no lock on stack prod; locks of other hosts: none"):
        locks.require_removable("prod", store.list_locks(), [f"{socket.gethostname()}:{alive}"])
    assert len(store.list_locks()) == 1


def test_the_lock_of_another_host_needs_exactly_its_owner_to_be_named(place: tuple[Store, Write]) -> None:
    store, write = place
    write(content(12, "ci-7"))
    with pytest.raises(Failure, match="--owner-is-gone ci-7:12"):
        locks.require_removable("prod", store.list_locks(), [])
    for other in ("ci-7:13", "ci-8:12", "ci-7"):
        message = f"{other} holds no lock on stack prod; locks of other hosts: ci-7:12"
        with pytest.raises(InputError, match=message):
            locks.require_removable("prod", store.list_locks(), [other])
    planned = locks.require_removable("prod", store.list_locks(), ["ci-7:12"])
    assert len(locks.remove_locks(store, planned, "prod")) == 1
    assert store.list_locks() == []


def test_one_owner_named_of_two_is_not_enough(place: tuple[Store, Write]) -> None:
    store, write = place
    write(content(12, "ci-7"))
    write(content(13, "ci-8"), "2c.json")
    with pytest.raises(Failure, match="is locked by process 13 of ada on host ci-8"):
        locks.require_removable("prod", store.list_locks(), ["ci-7:12"])
    assert len(store.list_locks()) == 2


def test_a_lock_that_has_changed_since_is_left(place: tuple[Store, Write], gone: int) -> None:
    store, write = place
    write(content(gone))
    planned = locks.require_removable("prod", store.list_locks(), [])
    write(content(gone, "ci-7"))
    with pytest.raises(Failure, match="has changed meanwhile"):
        locks.remove_locks(store, planned, "prod")
    assert len(store.list_locks()) == 1


def test_an_owner_that_lives_after_all_keeps_its_lock(
    place: tuple[Store, Write], gone: int, alive: int
) -> None:
    store, write = place
    key = write(content(alive))
    (seen,) = store.list_locks()
    planned = replace(seen, alive=False)  # as if no process had had its id at the first check
    with pytest.raises(Failure, match="has changed meanwhile"):
        locks.remove_locks(store, [planned], "prod")
    assert store.read(key) is not None


def test_a_run_that_begins_meanwhile_is_met(place: tuple[Store, Write], gone: int) -> None:
    store, write = place
    write(content(gone))
    planned = locks.require_removable("prod", store.list_locks(), [])
    write(content(12, "ci-7"), "2c.json")
    with pytest.raises(Failure, match="was locked meanwhile by process 12 of ada on host ci-7"):
        locks.remove_locks(store, planned, "prod")
    assert len(store.list_locks()) == 1


def test_a_lock_that_was_never_written_out_is_of_the_killed(tmp_path: Path) -> None:
    file = tmp_path / FOLDER / "1.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"pid": 12')
    os.utime(file, (1, 1))
    store = locks.open_store(f"file://{tmp_path}", "tried", "prod")
    (planned,) = locks.require_removable("prod", store.list_locks(), [])
    message = "removed the lock on stack prod of a run that was killed while writing it"
    assert locks.remove_locks(store, [planned], "prod") == [message]


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_an_object_that_is_no_lock_is_left(place: tuple[Store, Write]) -> None:
    store, write = place
    key = write('{"pid": 12')
    with pytest.raises(Failure, match=r"is locked by an unknown owner .unreadable lock.; look at") as caught:
        locks.require_removable("prod", store.list_locks(), [])
    assert key in str(caught.value)
