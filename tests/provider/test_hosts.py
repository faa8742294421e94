"""HostConfiguration under the real engine: what is previewed, done, kept, and left out of the state."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.engine import Engine, EngineFailure
from lab.toolchain import Toolchain
from tests.runner.conftest import Project, command, file

pytestmark = pytest.mark.engine

PROGRAM = """
import pathlib
import pulumi
from components.custom_resources import HostConfiguration, HostConfigurationArgs

given = pulumi.Config().require_object("given")
text = pathlib.Path(given["inventory"]).read_text()
inventory = pulumi.Output.secret(text) if given.get("secret") else text
args = HostConfigurationArgs(inventory=inventory, content=given["content"])
on = HostConfiguration("hosts", args)
pulumi.export("hosts", on.hosts)
"""
CANARY = "canary-4712-secret"
DONE = {"ok": True, "failed": 0, "unreachable": False, "message": ""}
ON_TWO = "inventory_hostname == 'two'"


@dataclass
class Stack(Project):
    """A Pulumi project with two hosts that are this machine, and its own playbooks."""

    messages: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    toolchain: Toolchain = field(kw_only=True)

    def declare(self, content: str = "1", **given: Any) -> None:
        inventory = self.folder / "inventory.json"
        inventory.write_text(json.dumps(self.inventory))
        self.settings = {"inventory": str(inventory), "content": content, **given}
        stack = {"config": {"gpuform:given": self.settings}}
        (self.folder / "Pulumi.local.yaml").write_text(yaml.safe_dump(stack))

    @property
    def engine(self) -> Engine:
        return Engine(self.paths, self.toolchain, say=self.messages.append)

    @property
    def state(self) -> str:
        files = (self.paths.state / "engine").rglob("*.json")
        return "\n".join(file.read_text(errors="replace") for file in files if file.is_file())

    def outputs(self) -> Any:
        checkpoint = next((self.paths.state / "engine").rglob("stacks/**/local.json"))
        resources = json.loads(checkpoint.read_text())["checkpoint"]["latest"]["resources"]
        (found,) = (one for one in resources if one["type"] == "gpuform:hosts:HostConfiguration")
        return found["outputs"]["hosts"]


@pytest.fixture
def project(tmp_path: Path, toolchain: Toolchain) -> Stack:
    root = tmp_path / "checkout"
    (root / "infra" / "incluster").mkdir(parents=True)  # the mark of a checkout: its playbooks are used
    (root / "Pulumi.yaml").write_text("name: gpuform\nruntime: python\nmain: infra/\n")
    (root / "infra" / "__main__.py").write_text(PROGRAM)
    (root / "on").mkdir()
    made = Stack(root, toolchain=toolchain)
    made.host("one")
    made.host("two")
    made.write(written())
    made.declare()
    return made


def written(content: str = "made\n") -> dict[str, Any]:
    return file("Write", "{{ playbook_dir }}/../../on/{{ inventory_hostname }}", content)


def messages(result: Any) -> str:
    return "\n".join(message.text for message in result.messages)


def test_hosts_are_previewed_done_and_left_alone(project: Stack) -> None:
    engine, on = project.engine, project.folder / "on"
    preview = engine.preview()
    assert "host one would change: Write" in messages(preview)
    assert list(on.iterdir()) == []
    engine.up()
    assert sorted(file.name for file in on.iterdir()) == ["one", "two"]
    assert project.outputs() == {name: {**DONE, "changed": 1} for name in ("one", "two")}
    project.declare(content="2")
    preview = engine.preview()
    assert preview.changed
    assert "host one: nothing to do" in messages(preview)
    destroyed = engine.destroy()
    assert "nothing is removed from the hosts: driver and toolkit stay on one, two" in messages(destroyed)
    assert sorted(file.name for file in on.iterdir()) == ["one", "two"]


@pytest.mark.nightly
def test_where_one_host_fails_the_others_are_done_and_the_same_again_goes_on(project: Stack) -> None:
    project.write(command("Break", "sh -c 'echo why >&2; false'", when=ON_TWO), written())
    with pytest.raises(EngineFailure, match="host two: Break: non-zero return code; why") as failure:
        project.engine.up()
    assert "1 of 2 hosts are done; run the same command again to continue" in str(failure.value)
    outputs = project.outputs()
    assert outputs["one"] == {**DONE, "changed": 1}
    assert outputs["two"]["ok"] is False
    assert outputs["two"]["message"] == "Break: non-zero return code; why"
    project.write(written())  # repaired on the host: the stack's declaration is unchanged
    assert project.engine.preview().changed
    project.engine.up()
    outputs = project.outputs()
    assert outputs == {"one": {**DONE, "changed": 0}, "two": {**DONE, "changed": 1}}
    assert not project.engine.preview().changed


@pytest.mark.nightly
def test_a_state_keeps_nothing_where_nothing_was_done(project: Stack) -> None:
    project.write(command("Break", "false"))
    with pytest.raises(EngineFailure, match="host one: Break"):
        project.engine.up()
    assert "HostConfiguration" not in project.state


@pytest.mark.nightly
def test_a_refresh_finds_what_was_changed_by_hand(project: Stack) -> None:
    project.engine.up()
    (project.folder / "on" / "two").write_text("by hand")
    project.engine.refresh()
    outputs = project.outputs()
    assert outputs["one"]["ok"]
    assert outputs["two"]["message"] == "differs: Write"
    project.engine.up()
    assert (project.folder / "on" / "two").read_text() == "made\n"
    assert project.outputs()["two"] == {**DONE, "changed": 1}


@pytest.mark.nightly
def test_a_host_that_is_off_is_said_in_the_preview_and_keeps_its_state(project: Stack) -> None:
    project.engine.up()
    project.hosts["two"] = {"ansible_host": "127.0.0.1", "ansible_port": 1}
    project.declare()
    preview = project.engine.preview()
    text = messages(preview)
    assert "host two was not checked: 127.0.0.1:1" in text
    assert "host one: nothing to do" in text
    project.engine.refresh()
    assert project.outputs()["two"]["ok"]


@pytest.mark.nightly
@pytest.mark.parametrize("secret", [False, True], ids=["a password in it", "declared so"])
def test_a_secret_of_the_inventory_is_nowhere(project: Stack, secret: bool) -> None:
    name = "some_word" if secret else "ansible_become_password"
    for host in ("one", "two"):
        project.host(host, **{name: CANARY})
    failing = command("Fail", f"sh -c 'echo {{{{ {name} }}}} >&2; false'", when=ON_TWO)
    project.write(written(f"{{{{ {name} }}}}\n"), failing)
    project.declare(secret=secret)
    inventory = Path(project.settings["inventory"])
    events: list[str] = []
    preview = project.engine.preview("local", on_event=lambda event: events.append(str(event)))
    with pytest.raises(EngineFailure, match="host two: Fail") as failure:
        project.engine.up("local", on_event=lambda event: events.append(str(event)))
    on = project.folder / "on"
    assert (on / "one").read_text() == f"{CANARY}\n", "it was used"
    for place in (str(failure.value), str(events), str(preview), str(project.messages), project.state):
        assert CANARY not in place
    files = (one for one in project.folder.rglob("*") if one.is_file() and not one.is_symlink())
    assert {one for one in files if CANARY.encode() in one.read_bytes() and one.parent != on} == {inventory}
