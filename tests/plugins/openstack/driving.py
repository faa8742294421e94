"""Drives the stand-in as the engine does, in one event loop per call, and keeps what it would show."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from gpuform.plugins.handler import Call, InitFailed, Properties
from gpuform.plugins.openstack.provider import OpenstackProvider
from gpuform.plugins.openstack.resource import UNFINISHED
from gpuform.plugins.properties import reveal
from tests.plugins.openstack.conductor import OFFERED
from tests.plugins.shown import Log

CLUSTER = "openstack:containerinfra/cluster:Cluster"
GROUP = "openstack:containerinfra/nodeGroup:NodeGroup"
TEMPLATE = "openstack:containerinfra/clusterTemplate:ClusterTemplate"
WANTED: Properties = {"name": "research", "clusterTemplateId": OFFERED}
"""The smallest cluster that a program can ask for."""


@dataclass
class Driver:
    """One resource, as the engine's state has it: nothing before `up`, and after `down`."""

    token: str
    config: Properties = field(default_factory=lambda: {"cloud": "cern"})
    name: str = "thing"
    timeout: float | None = 20
    log: Log = field(default_factory=Log)
    id: str = ""
    inputs: Properties = field(default_factory=dict)
    outputs: Properties = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    def ask(self, verb: str, *args: Any, preview: bool = False) -> Any:
        """What a handler answers; in a fresh process each time, as far as the stand-in can tell."""

        async def run() -> Any:
            provider = OpenstackProvider(self.log)
            await provider.configure(self.config)
            call = Call(
                f"urn:pulumi:dev::t::{self.token}::{self.name}",
                self.token,
                self.name,
                self.log,
                asyncio.Event(),
                preview=preview,
                timeout=self.timeout,
            )
            return await getattr(provider.handler(self.token), verb)(call, *args)

        return asyncio.run(run())

    def up(self, **inputs: Any) -> Properties:
        """One update, by the steps that the engine would take; each is noted in `steps`."""
        checked = self.ask("check", self.inputs, inputs)
        assert not checked.failures, checked.failures
        news = checked.inputs
        if not self.id:
            return self._create(news)
        found = self.ask("diff", self.id, self.inputs, self.outputs, news)
        if found.replaces:
            self.down()
            return self._create(self.ask("check", {}, inputs).inputs)
        if found.changes or self.outputs.get(UNFINISHED):
            self.steps.append("update")
            try:
                self.outputs = self.ask("update", self.id, self.inputs, self.outputs, news)
            except InitFailed as failure:
                self.outputs, self.inputs = failure.properties, news
                raise
            self.inputs = news
        return self.shown

    def _create(self, news: Properties) -> Properties:
        self.steps.append("create")
        try:
            self.id, self.outputs = self.ask("create", news)
        except InitFailed as failure:
            self.id, self.outputs, self.inputs = failure.id, failure.properties, news
            raise
        self.inputs = news
        return self.shown

    def down(self) -> None:
        self.steps.append("delete")
        self.ask("delete", self.id, self.inputs, self.outputs)
        self.id, self.inputs, self.outputs = "", {}, {}

    def refresh(self) -> bool:
        """Read it again; whether it is still there."""
        found = self.ask("read", self.id, self.inputs, self.outputs)
        if found is None:
            self.id, self.inputs, self.outputs = "", {}, {}
            return False
        self.id, self.inputs, self.outputs = found.id, found.inputs, found.properties
        return True

    def lost(self) -> None:
        """The engine was killed before it wrote down what the stand-in answered."""
        self.id, self.inputs, self.outputs = "", {}, {}

    @property
    def shown(self) -> Properties:
        found: Properties = reveal(self.outputs)
        return found
