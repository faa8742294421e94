"""Own hosts prepared from bare by `pulumi up`: roles, engine, hosts and package signatures are real.

The hosts' nvidia-smi plays the GPU (tests/bed); packages come from a repository beside them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuform.engine import Engine, EngineFailure, Result
from lab.toolchain import Toolchain
from tests.bed import Bed, Refused, stack
from tests.journey.conftest import Checkout, User, make_checkout

pytestmark = [pytest.mark.hosts, pytest.mark.engine, pytest.mark.nightly]

DONE = {"ok": True, "failed": 0, "unreachable": False, "message": ""}
HELD = "nvidia-container-toolkit"
VERSION = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"


@dataclass
class Lab:
    """Two booted hosts, one with a T4, and a checkout that declares them."""

    bed: Bed
    checkout: Checkout

    def declare(self, *, cpu_address: str | None = None) -> None:
        gpu, cpu = self.bed.hosts
        shared = {"kind": "time_slicing", "replicas": 3}
        pools = [
            {"name": "t4", "hosts": [gpu.name], "gpu": {"models": ["T4"], "count": 1}, "sharing": shared},
            {"name": "cpu", "hosts": [{"name": cpu.name, "address": cpu_address or cpu.address}]},
        ]
        stack.write(self.checkout.paths.root / "Pulumi.lab.yaml", stack.environment(self.bed, pools))

    @property
    def engine(self) -> Engine:
        return Engine(self.checkout.paths, Toolchain(self.checkout.paths), say=lambda line: None)

    def hosts(self) -> dict[str, Any]:
        stacks = self.checkout.paths.state.rglob("stacks/**/lab.json")
        resources = json.loads(next(stacks).read_text())["checkpoint"]["latest"]["resources"]
        found = [item for item in resources if item["type"] == "gpuform:hosts:HostConfiguration"]
        outputs: dict[str, Any] = found[0]["outputs"]["hosts"]
        return outputs


def quiet(event: Any) -> None:
    pass


def output_of(result: Result) -> str:
    return "\n".join(message.text for message in result.messages)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    bed = Bed(f"onprem-{os.getpid()}")
    try:
        hosts = bed.up(2, owner=os.getpid())
        hosts[0].write("/etc/fake-gpu.json", json.dumps({"product": "Tesla T4", "count": 1}))
        bed.furnish_repository()
        yield Lab(bed, make_checkout(tmp_path))
    except Refused as refused:
        pytest.skip(f"no hosts: {refused}")
    finally:
        bed.down()


def test_from_bare_to_done_over_a_host_that_was_off_and_back_after_drift(lab: Lab, tmp_path: Path) -> None:
    engine = lab.engine
    gpu, cpu = lab.bed.hosts
    lab.declare(cpu_address=cpu.address.rpartition(".")[0] + ".250")
    preview = engine.preview("lab", on_event=quiet)
    assert f"host {gpu.name} would change: " in output_of(preview)
    assert f"host {cpu.name} was not checked: " in output_of(preview)
    assert gpu.run("command -v nvidia-smi", check=False).returncode, "a preview changes nothing"

    with pytest.raises(EngineFailure, match=f"host {cpu.name}: cannot be reached"):
        engine.up("lab", on_event=quiet)
    partial = lab.hosts()
    assert partial[gpu.name] | {"changed": 0} == {**DONE, "changed": 0}
    assert (partial[cpu.name]["ok"], partial[cpu.name]["unreachable"]) == (False, True)
    assert gpu.out(VERSION) == stack.DRIVER

    lab.declare()
    engine.up("lab", on_event=quiet)
    done = lab.hosts()
    assert done[gpu.name] == {**DONE, "changed": 0}, "what was done is not done again"
    assert done[cpu.name]["ok"]
    assert done[cpu.name]["changed"] > 0
    assert not engine.preview("lab", on_event=quiet).changed
    plain = User(lab.checkout.paths, "lab", tmp_path / "user")
    assert "would change" not in plain.preview()
    assert "5 created" in plain.up()  # with two guards against losses

    gpu.run(f"apt-mark unhold {HELD}")
    engine.refresh("lab", on_event=quiet)
    assert lab.hosts()[gpu.name]["message"].startswith("differs: nvidia_container_toolkit : ")
    assert lab.hosts()[cpu.name]["ok"]
    engine.up("lab", on_event=quiet)
    assert lab.hosts()[gpu.name]["ok"]
    assert HELD in gpu.out("apt-mark showhold").split()

    gone = engine.destroy("lab", on_event=quiet)
    stay = ", ".join(sorted((cpu.name, gpu.name)))
    assert f"nothing is removed from the hosts: driver and toolkit stay on {stay}" in output_of(gone)
    assert gpu.out(VERSION) == stack.DRIVER
    assert list((lab.checkout.paths.state / "hosts").iterdir()) == []
