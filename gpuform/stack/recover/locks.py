"""The locks on a stack, in any backend: taking one, and the removal of those with a dead owner.

The engine gives every run a lock file with a name of its own, so removing one by its name can never remove
the lock of a run that began meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from gpuform.checkout.errors import Failure, InputError
from gpuform.clients.aws.api import create_client, translate_errors
from gpuform.engine import locks as engine_locks
from gpuform.engine.files import write
from gpuform.engine.locks import Owner
from gpuform.stack.recover.plan import Lock

_FOLDER = ".pulumi/locks/organization"


class Store(Protocol):
    """Storage of one stack's locks."""

    def list_locks(self) -> list[Lock]:
        """All current locks."""

    def read(self, key: str) -> bytes | None:
        """A lock's content; None if it is gone."""

    def add(self, content: str) -> str:
        """Write a lock, and return its key."""

    def remove(self, key: str) -> None:
        """Remove a lock; a missing lock is fine."""


@dataclass(frozen=True)
class FolderStore:
    """A file backend."""

    folder: Path

    def list_locks(self) -> list[Lock]:
        """Waits for a lock that is being written."""
        return [
            Lock(
                str(path),
                owner,
                self.read(str(path)) or b"",
                engine_locks.is_running(owner) if owner else False,
            )
            for path, owner in engine_locks.list_locks(self.folder)
        ]

    def read(self, key: str) -> bytes | None:
        try:
            return Path(key).read_bytes()
        except FileNotFoundError:
            return None

    def add(self, content: str) -> str:
        file = self.folder / f"{uuid.uuid4()}.json"
        write(file, content, 0o600)
        return str(file)

    def remove(self, key: str) -> None:
        """Removes the file, and the attributes that the engine's storage library keeps beside it."""
        Path(key).unlink(missing_ok=True)
        Path(f"{key}.attrs").unlink(missing_ok=True)


@dataclass(frozen=True)
class BucketStore:
    """An S3 backend, with the caller's own credentials."""

    bucket: str
    prefix: str
    s3: Any

    def list_locks(self) -> list[Lock]:
        with translate_errors(f"aws s3 ls s3://{self.bucket}/{self.prefix}"):
            pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
            keys = [item["Key"] for item in pages.build_full_result().get("Contents", ())]
        all_locks = []
        for key in keys:
            if (content := self.read(key)) is not None:
                owner = engine_locks.parse_owner(content.decode(errors="replace"))
                # Objects are written whole: an unreadable one does not come from a killed run.
                alive = engine_locks.is_running(owner) if owner else None
                all_locks.append(Lock(key, owner, content, alive))
        return all_locks

    def read(self, key: str) -> bytes | None:
        with translate_errors(f"aws s3 cp s3://{self.bucket}/{key} -"):
            try:
                content: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
            except self.s3.exceptions.NoSuchKey:
                return None
        return content

    def add(self, content: str) -> str:
        key = f"{self.prefix}{uuid.uuid4()}.json"
        with translate_errors(f"aws s3 cp - s3://{self.bucket}/{key}"):
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=content.encode())
        return key

    def remove(self, key: str) -> None:
        with translate_errors(f"aws s3 rm s3://{self.bucket}/{key}"):
            self.s3.delete_object(Bucket=self.bucket, Key=key)


def open_store(backend: str, project: str, stack: str) -> Store:
    """The lock store of a stack. Raises InputError for a kind of backend that is not supported here."""
    parts = urlsplit(backend)
    lock_folder = f"{_FOLDER}/{project}/{stack}"
    if parts.scheme == "file":
        folder_path = unquote(parts.netloc + parts.path)
        return FolderStore(Path(folder_path).expanduser() / lock_folder)
    if parts.scheme == "s3":
        query = parse_qs(parts.query)
        if unsupported := sorted({"endpoint", "profile"} & set(query)):
            raise InputError(
                "state.backend",
                f"only the engine reads {unsupported[0]} in its address: locks would be searched elsewhere",
                "set AWS_ENDPOINT_URL_S3 or AWS_PROFILE instead",
            )
        region = query.get("region", ["us-east-1"])[0]
        folder = "/".join(part for part in (parts.path.strip("/"), lock_folder) if part)
        return BucketStore(parts.netloc, f"{folder}/", create_client("s3", region))
    raise InputError(
        "state.backend",
        f"locks of a {parts.scheme}:// backend cannot be read by gpuform",
        f"'pulumi cancel --stack {stack}' removes them, those of running processes, too; the rest of "
        "'gpuform recover' needs s3:// or file://",
    )


@contextmanager
def hold_lock(stack: str, store: Store) -> Iterator[None]:
    """Hold the stack as a run of the engine does: while another run holds it, Failure.

    As the engine does (its ``diyBackend.Lock``), it looks again once its own lock is written, so that of two
    runs that begin at the same time at most one goes on.
    """
    require_removable(stack, store.list_locks(), ())
    key = store.add(engine_locks.own_lock_content())
    name = key.rpartition("/")[2]
    engine_locks.OWN_LOCKS.add(name)
    try:
        for other in store.list_locks():
            if other.key != key and other.alive is not False:
                raise Failure(f"stack {stack}", f"is locked by {other.owner_name}", _remedy(stack, other))
        yield
    finally:
        store.remove(key)
        engine_locks.OWN_LOCKS.discard(name)


def require_removable(stack: str, locks: Iterable[Lock], ended: Sequence[str]) -> tuple[Lock, ...]:
    """The locks with a dead owner, or one that the user calls dead (``HOST:PID``, for other hosts only).

    Raises Failure for any other lock, InputError for an entry of ``ended`` that holds no such lock.
    """
    all_locks = tuple(locks)
    owners = {
        f"{lock.owner.host}:{lock.owner.pid}": lock for lock in all_locks if lock.owner and lock.alive is None
    }
    for owner in ended:
        if owner not in owners:
            known = ", ".join(sorted(owners)) or "none"
            raise InputError(
                "--owner-is-gone", f"{owner} holds no lock on stack {stack}", f"locks of other hosts: {known}"
            )
    for lock in all_locks:
        if lock.alive is False or (lock.alive is None and lock.owner and _host_and_pid(lock.owner) in ended):
            continue
        raise Failure(f"stack {stack}", f"is locked by {lock.owner_name}", _remedy(stack, lock))
    return tuple(replace(lock, confirmed=lock.alive is None) for lock in all_locks)


def remove_locks(store: Store, planned: Sequence[Lock], stack: str) -> list[str]:
    """Remove the planned locks, each only if it is unchanged; returns one line per lock.

    Raises Failure, and removes nothing more, if a lock changed, or an owner lives after all, or a run has
    begun meanwhile.
    """
    lines = []
    for lock in planned:
        content = store.read(lock.key)
        if content is None:
            continue
        is_alive = engine_locks.is_running(lock.owner) if lock.owner else False
        if content != lock.content or (is_alive is not False and not (is_alive is None and lock.confirmed)):
            raise Failure(
                f"stack {stack}",
                f"the lock of {lock.owner_name} has changed meanwhile",
                "run the same command again",
            )
        store.remove(lock.key)
        lines.append(f"removed the lock on stack {stack} of {lock.owner_name}")
    if others := store.list_locks():
        raise Failure(f"stack {stack}", f"was locked meanwhile by {others[0].owner_name}", "wait for it")
    return lines


def _host_and_pid(owner: Owner) -> str:
    return f"{owner.host}:{owner.pid}"


def _remedy(stack: str, lock: Lock) -> str:
    if lock.alive and lock.owner:
        return f"wait for it to end, or stop it with 'kill -INT {lock.owner.pid}'"
    if lock.owner is None:
        return f"look at {lock.key}; 'pulumi cancel --stack {stack}' removes it, regardless of its owner"
    return (
        "it ran on another host, so its state is unknown; wait for it, or, if you know that it is gone, run "
        f"'gpuform recover {stack} --owner-is-gone {_host_and_pid(lock.owner)}'"
    )
