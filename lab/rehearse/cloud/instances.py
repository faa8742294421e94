"""Simulated instances: they become nodes, are reclaimed, and their nodes are then deleted."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.clients.aws.api import answers, client
from lab.rehearse.cloud import joining
from lab.rehearse.cloud.answers import ACCOUNT
from lab.rehearse.cloud.fleet import Fleets
from lab.rehearse.cloud.market import Bought, Market

_LOOK_S = 0.25
_LOST_S = 2.0  # until the cloud controller deletes the node of an ended instance; minutes in reality


class Instances:
    """Manages the instances of one region from a thread of its own.

    ``fleets`` launched them; ``join_s``: seconds from its launch until an instance becomes a node.
    """

    def __init__(
        self, region: str, market: Market, fleets: Fleets, kubectl: Sequence[str], join_s: float
    ) -> None:
        self._region, self._market, self._fleets = region, market, fleets
        self._kubectl, self._join_s = list(kubectl), join_s
        self._reclaims: dict[str, float] = {}
        self._lost: dict[str, float] = {}  # node -> when its instance ended
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.trouble: tuple[str, ...] = ()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(timeout=60)

    def reclaim(self, id: str, after_s: float) -> None:
        """Terminate an instance after ``after_s``, as AWS does with spot."""
        self._reclaims[id] = time.monotonic() + after_s

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            try:
                self._look()
                self.trouble = ()
            except Failure as error:
                self.trouble = (str(error),)
            except Exception as error:  # if this thread ended, no instance would join, without a message
                self.trouble = (f"{type(error).__name__}: {error}",)

    def _look(self) -> None:
        book = self._market.bought()  # read before ``running``: an instance sold in between has not ended
        running = self._running()
        due = [id for id, at in list(self._reclaims.items()) if at <= time.monotonic() and id in running]
        if due:
            with answers("the simulated AWS"):
                client("ec2", self._region).terminate_instances(InstanceIds=due)
            running = {id: address for id, address in running.items() if id not in due}
        for one in book:
            if one.ended is None and one.id not in running:
                self._market.ended([one.id])
                if one.node:
                    self._lost[one.node] = time.monotonic()
        self._let_join(running)
        self._take_away()

    def _let_join(self, running: Mapping[str, str]) -> None:
        since = time.time() - self._join_s
        waiting = [one for one in self._market.bought() if one.node is None and one.id in running]
        nodes = {one.id: self._node(one, running[one.id]) for one in waiting if one.launched <= since}
        if not nodes:
            return
        listed = {"apiVersion": "v1", "kind": "List", "items": list(nodes.values())}
        self._run("apply", "-f", "-", input=json.dumps(listed))
        for id, made in nodes.items():
            self._market.joined(id, made["metadata"]["name"])

    def _take_away(self) -> None:
        """Delete nodes ``_LOST_S`` after their instance ended."""
        gone = [name for name, since in self._lost.items() if since < time.monotonic() - _LOST_S]
        if gone:
            self._run("delete", "nodes", "--ignore-not-found", "--wait=false", *gone)
        for name in gone:
            del self._lost[name]

    def _node(self, one: Bought, address: str) -> dict[str, Any]:
        name = f"ip-{address.replace('.', '-')}.{self._region}.compute.internal"
        told, adapters = joining.kubelet(self._fleets.user_data[one.id]), self._fleets.adapters[one.id]
        return joining.node(
            self._market.machines[one.machine], name, one.id, one.zone, self._region, told, adapters
        )

    def _running(self) -> dict[str, str]:
        from moto.ec2.models import ec2_backends

        backend = ec2_backends[ACCOUNT][self._region]
        all_of_them = [
            one for reservation in list(backend.reservations.values()) for one in reservation.instances
        ]
        return {one.id: str(one.private_ip) for one in all_of_them if one.state == "running"}

    def _run(self, *words: str, input: str | None = None) -> None:
        done = subprocess.run([*self._kubectl, *words], input=input, capture_output=True, text=True)
        if done.returncode:
            raise Failure("the simulated AWS", f"kubectl {words[0]}: {done.stderr.strip()}", "see its log")
