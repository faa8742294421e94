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
from gpuform.clients.aws.api import answers, client
from gpuform.engine import locks as engine_locks
from gpuform.engine.locks import Owner
from gpuform.engine.places import write
from gpuform.stack.recover.plan import Lock

_FOLDER = ".pulumi/locks/organization"


class Store(Protocol):
    """Storage of one stack's locks."""

    def locks(self) -> list[Lock]:
        """All current locks."""

    def content(self, key: str) -> bytes | None:
        """A lock's content; None if it is gone."""

    def add(self, content: str) -> str:
        """Write a lock, and return its key."""

    def remove(self, key: str) -> None:
        """Remove a lock; a missing lock is fine."""


@dataclass(frozen=True)
class Folder:
    """A file backend."""

    folder: Path

    def locks(self) -> list[Lock]:
        """Waits for a lock that is being written."""
        return [
            Lock(
                str(path),
                owner,
                self.content(str(path)) or b"",
                engine_locks.lives(owner) if owner else False,
            )
            for path, owner in engine_locks.entries(self.folder)
        ]

    def content(self, key: str) -> bytes | None:
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
class Bucket:
    """An S3 backend, with the caller's own credentials."""

    bucket: str
    prefix: str
    s3: Any

    def locks(self) -> list[Lock]:
        with answers(f"aws s3 ls s3://{self.bucket}/{self.prefix}"):
            pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
            keys = [item["Key"] for item in pages.build_full_result().get("Contents", ())]
        found = []
        for key in keys:
            if (content := self.content(key)) is not None:
                owner = engine_locks.written(content.decode(errors="replace"))
                # Objects are written whole: an unreadable one does not come from a killed run.
                alive = engine_locks.lives(owner) if owner else None
                found.append(Lock(key, owner, content, alive))
        return found

    def content(self, key: str) -> bytes | None:
        with answers(f"aws s3 cp s3://{self.bucket}/{key} -"):
            try:
                content: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
            except self.s3.exceptions.NoSuchKey:
                return None
        return content

    def add(self, content: str) -> str:
        key = f"{self.prefix}{uuid.uuid4()}.json"
        with answers(f"aws s3 cp - s3://{self.bucket}/{key}"):
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=content.encode())
        return key

    def remove(self, key: str) -> None:
        with answers(f"aws s3 rm s3://{self.bucket}/{key}"):
            self.s3.delete_object(Bucket=self.bucket, Key=key)


def store(backend: str, project: str, stack: str) -> Store:
    """The lock store of a stack. Raises InputError for a kind of backend that is not supported here."""
    parts = urlsplit(backend)
    own = f"{_FOLDER}/{project}/{stack}"
    if parts.scheme == "file":
        place = unquote(parts.netloc + parts.path)
        return Folder(Path(place).expanduser() / own)
    if parts.scheme == "s3":
        asked = parse_qs(parts.query)
        if elsewhere := sorted({"endpoint", "profile"} & set(asked)):
            raise InputError(
                "state.backend",
                f"only the engine reads {elsewhere[0]} in its address: locks would be searched elsewhere",
                "set AWS_ENDPOINT_URL_S3 or AWS_PROFILE instead",
            )
        region = asked.get("region", ["us-east-1"])[0]
        folder = "/".join(part for part in (parts.path.strip("/"), own) if part)
        return Bucket(parts.netloc, f"{folder}/", client("s3", region))
    raise InputError(
        "state.backend",
        f"locks of a {parts.scheme}:// backend cannot be read by gpuform",
        f"'pulumi cancel --stack {stack}' removes them, those of running processes, too; the rest of "
        "'gpuform recover' needs s3:// or file://",
    )


@contextmanager
def holding(stack: str, place: Store) -> Iterator[None]:
    """Hold the stack as a run of the engine does: while another run holds it, Failure.

    As the engine does (its ``diyBackend.Lock``), it looks again once its own lock is written, so that of two
    runs that begin at the same time at most one goes on.
    """
    require_removable(stack, place.locks(), ())
    key = place.add(engine_locks.own())
    name = key.rpartition("/")[2]
    engine_locks.OWN.add(name)
    try:
        for other in place.locks():
            if other.key != key and other.alive is not False:
                raise Failure(f"stack {stack}", f"is locked by {other.named}", _remedy(stack, other))
        yield
    finally:
        place.remove(key)
        engine_locks.OWN.discard(name)


def require_removable(stack: str, locks: Iterable[Lock], gone: Sequence[str]) -> tuple[Lock, ...]:
    """The locks with a dead owner, or one that the user calls dead (``HOST:PID``, for other hosts only).

    Raises Failure for any other lock, InputError for an entry of ``gone`` that holds no such lock.
    """
    found = tuple(locks)
    owners = {f"{one.owner.host}:{one.owner.pid}": one for one in found if one.owner and one.alive is None}
    for word in gone:
        if word not in owners:
            there = ", ".join(sorted(owners)) or "none"
            raise InputError(
                "--owner-is-gone", f"{word} holds no lock on stack {stack}", f"locks of other hosts: {there}"
            )
    for one in found:
        if one.alive is False or (one.alive is None and one.owner and _word(one.owner) in gone):
            continue
        raise Failure(f"stack {stack}", f"is locked by {one.named}", _remedy(stack, one))
    return tuple(replace(one, confirmed=one.alive is None) for one in found)


def remove(place: Store, planned: Sequence[Lock], stack: str) -> list[str]:
    """Remove the planned locks, each only if it is unchanged; returns one line per lock.

    Raises Failure, and removes nothing more, if a lock changed, or an owner lives after all, or a run has
    begun meanwhile.
    """
    said = []
    for lock in planned:
        now = place.content(lock.key)
        if now is None:
            continue
        lives = engine_locks.lives(lock.owner) if lock.owner else False
        if now != lock.content or (lives is not False and not (lives is None and lock.confirmed)):
            raise Failure(
                f"stack {stack}",
                f"the lock of {lock.named} has changed meanwhile",
                "run the same command again",
            )
        place.remove(lock.key)
        said.append(f"removed the lock on stack {stack} of {lock.named}")
    if others := place.locks():
        raise Failure(f"stack {stack}", f"was locked meanwhile by {others[0].named}", "wait for it")
    return said


def _word(owner: Owner) -> str:
    return f"{owner.host}:{owner.pid}"


def _remedy(stack: str, lock: Lock) -> str:
    if lock.alive and lock.owner:
        return f"wait for it to end, or stop it with 'kill -INT {lock.owner.pid}'"
    if lock.owner is None:
        return f"look at {lock.key}; 'pulumi cancel --stack {stack}' removes it, regardless of its owner"
    return (
        "it ran on another host, so its state is unknown; wait for it, or, if you know that it is gone, run "
        f"'gpuform recover {stack} --owner-is-gone {_word(lock.owner)}'"
    )
