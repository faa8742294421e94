"""The rebuild of one node, look by look: the cluster's answers are played, Magnum's are the stub's."""

from __future__ import annotations

import urllib.error
from email.message import Message
from pathlib import Path
from typing import Any

from infra.incluster.rebuilding import Rebuilder, magnum_api
from tests.incluster.magnum_stub import MagnumStub

Magnum = magnum_api.Magnum  # as the program imports it: beside itself

SERVER = "0a1b2c3d-0000-4000-8000-000000000001"
NOTE: dict[str, Any] = {
    "node": "n",
    "uid": "u",
    "server": SERVER,
    "group": "gpu-a100",
    "class": "replace",
    "elastic": False,
    "faults": ["GPU 0: XID 79, class replace"],
    "stage": "drain",
    "since": 0.0,
    "from": None,
    "to": None,
    "tries": 0,
}
CLOSED = {"metadata": {"name": "n", "uid": "u", "annotations": {"gpuform.io/gpu-health": "{}"}}}
Json = dict[str, Any]


def pod(name: str, owner: str | None = "ReplicaSet", **meta: Any) -> Json:
    own = [{"kind": owner, "name": "x", "controller": True}] if owner else []
    return {"metadata": {"name": name, "namespace": "a", "uid": name, "ownerReferences": own, **meta}}


class Pods:
    """What the cluster answers: pods on the node, and a budget that may hold them."""

    def __init__(self, *pods: Json) -> None:
        self.there, self.held, self.asked = list(pods), False, list[str]()

    def pods(self, node: str) -> list[Json]:
        assert node == "n"
        return list(self.there)

    def evict(self, pod: Json) -> None:
        self.asked.append(pod["metadata"]["name"])
        if self.held:
            raise urllib.error.HTTPError("", 429, "budget", Message(), None)
        self.there.remove(pod)


class Played:
    """A rebuild, look by look; the node goes with its server."""

    def __init__(self, stub: MagnumStub, folder: Path, *pods: Json, **note: Any) -> None:
        self.stub, self.cluster, self.folder = stub, Pods(*pods), folder
        self.note: Json | None = {**NOTE, **note}
        self.node: Json | None = CLOSED
        self.now, self.said = 1000.0, list[str]()
        self.failed = False
        self.anew()

        def removed(server: str) -> None:
            assert server == SERVER
            self.node = None

        stub.removed = removed

    def anew(self) -> None:
        """The loop is started again."""
        self.rebuilder = Rebuilder(self.cluster, Magnum(self.folder, "research"))  # type: ignore[arg-type]

    def look(self, forget: bool = False, passed: float = 15.0) -> None:
        """One look; killed after what it did, before that is written down, when it is to ``forget``."""
        assert self.note is not None
        self.now += passed
        move = self.rebuilder.look(self.note, self.node, self.now)
        self.said.append(move.said)
        if forget:
            self.anew()
            return
        self.note, self.failed = move.after, move.failed

    def ends(self, most: int = 30) -> None:
        for _ in range(most):
            if self.note is None:
                return
            self.look()
        raise AssertionError(self.said)


SMALLER, LARGER = ("gpu-a100", 2, [SERVER]), ("gpu-a100", 3, [])
