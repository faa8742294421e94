"""Pulumi mocks that record what a program registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.runtime.mocks import MockCallArgs, MockResourceArgs, Mocks


@dataclass(frozen=True)
class Recorded:
    """One registered resource."""

    type: str
    name: str
    inputs: dict[str, Any]


class Recorder(Mocks):
    """Answers every registration with its own inputs; in a preview ids are unknown."""

    def __init__(self, preview: bool) -> None:
        self.preview = preview
        self.resources: list[Recorded] = []

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        self.resources.append(Recorded(args.typ, args.name, dict(args.inputs)))
        return (None if self.preview else f"{args.name}-id", dict(args.inputs))

    def call(self, args: MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        raise AssertionError(
            f"the program calls {args.token}, but nothing that it makes may depend on an answer"
        )

    def of(self, type_: str) -> list[Recorded]:
        """The resources of one type, in the order of their names."""
        return sorted((r for r in self.resources if r.type == type_), key=lambda r: r.name)


def record(environment: dict[str, Any], preview: bool = False) -> Recorder:
    """Run the program of ``infra/__main__.py`` on an environment, without an engine."""
    from infra.__main__ import cluster, platform
    from infra.config import parse

    recorder = Recorder(preview)
    pulumi.runtime.set_mocks(recorder, project="gpuform", stack="test", preview=preview)

    @pulumi.runtime.test
    def run() -> None:
        env = parse(environment)
        platform(env, cluster(env))

    run()
    return recorder
