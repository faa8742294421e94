"""What a killed run leaves of a release, and what the next run makes of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuform.plugins.handler import PluginError
from tests.waiting import until

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    ("status", "revisions"),
    [
        ("pending-install", [(1, "deployed")]),
        ("failed", [(1, "deployed")]),
        ("uninstalling", [(1, "deployed")]),
        ("deployed", [(1, "superseded"), (2, "deployed")]),
    ],
)
def test_what_a_killed_create_left_is_finished(releases, status, revisions):
    releases.create(values={"text": "old"})
    releases.mark(1, status)
    releases.create(values={"text": "new"})
    assert releases.revisions() == revisions
    assert releases.text() == "new"


def test_an_upgrade_that_was_killed_is_finished(releases):
    releases.create(values={"text": "one"})
    releases.update(values={"text": "two"})
    releases.mark(1, "deployed")
    releases.mark(2, "pending-upgrade")
    releases.update(values={"text": "three"})
    assert releases.text() == "three"
    assert releases.revisions()[-1] == (4, "deployed")


def test_an_upgrade_by_hand_that_runs_is_not_disturbed(releases):
    releases.create()
    releases.update(values={"text": "two"})
    releases.mark(2, "pending-upgrade", **{"gpuform.io/revision": "1"})
    with pytest.raises(
        PluginError, match=r"revision 2 is pending-upgrade, by somebody else.*helm rollback t"
    ):
        releases.update(values={"text": "three"})


_CREATE = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from gpuform.plugins.handler import Call, Engine
from gpuform.plugins.kubernetes.client import Client
from gpuform.plugins.kubernetes.discovery import Discovery
from gpuform.plugins.kubernetes.kubeconfig import resolve
from gpuform.plugins.kubernetes.release import ReleaseHandler
async def main(chart, namespace, urn):
    client = Client(resolve({"kubeconfig": sys.stdin.read()}))
    inputs = {"chart": chart, "name": "t", "namespace": namespace, "values": {"stuck": True}, "timeout": 60}
    call = Call(urn, "", "t", Engine(), asyncio.Event())
    await ReleaseHandler(client, Discovery(client)).create(call, inputs)
asyncio.run(main(*sys.argv[2:]))
"""


def test_a_plugin_that_is_killed_takes_helm_along_and_the_next_run_goes_on(releases):
    root = str(Path(__file__).parents[3])
    arguments = [
        sys.executable,
        "-c",
        _CREATE,
        root,
        str(releases.chart),
        releases.namespace,
        releases.call().urn,
    ]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE) as plugin:
        assert plugin.stdin
        plugin.stdin.write(releases.kubeconfig.encode())
        plugin.stdin.close()
        until(releases.revisions, [(1, "pending-install")].__eq__)
        plugin.send_signal(signal.SIGKILL)
    releases.create(values={"text": "second"})
    assert releases.text() == "second"
    assert releases.revisions() == [(1, "deployed")]
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert not [line for line in running.splitlines() if "helm" in line and releases.namespace in line]
