"""HostConfiguration under the real engine: what is previewed, done, kept, and left out of the state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuform.engine import EngineFailure
from tests.provider.hosts.conftest import Project, written

pytestmark = pytest.mark.engine

CANARY = "canary-4712-secret"
DONE = {"ok": True, "failed": 0, "unreachable": False, "message": ""}
ON_TWO = "inventory_hostname == 'two'"


def quiet(event: Any) -> None:
    pass


def messages(result: Any) -> str:
    return "\n".join(message.text for message in result.messages)


def test_hosts_are_previewed_done_and_left_alone(project: Project) -> None:
    engine, on = project.engine, project.paths.root / "on"
    preview = engine.preview("local", on_event=quiet)
    assert "host one would change: Write" in messages(preview)
    assert list(on.iterdir()) == []
    engine.up("local", on_event=quiet)
    assert sorted(file.name for file in on.iterdir()) == ["one", "two"]
    assert project.outputs() == {name: {**DONE, "changed": 1} for name in ("one", "two")}
    assert not engine.preview("local", on_event=quiet).changed
    project.declare(content="2")
    preview = engine.preview("local", on_event=quiet)
    assert preview.changed
    assert "host one: nothing to do" in messages(preview)
    engine.up("local", on_event=quiet)
    assert project.outputs()["one"] == {**DONE, "changed": 0}
    destroyed = engine.destroy("local", on_event=quiet)
    assert "nothing is removed from the hosts: driver and toolkit stay on one, two" in messages(destroyed)
    assert sorted(file.name for file in on.iterdir()) == ["one", "two"]


@pytest.mark.nightly
def test_one_host_fails_the_others_are_done_and_the_same_again_goes_on(project: Project) -> None:
    broken = {"name": "Break", "ansible.builtin.command": "sh -c 'echo why >&2; false'", "when": ON_TWO}
    project.playbook(broken, written())
    with pytest.raises(EngineFailure, match="host two: Break: non-zero return code; why") as failure:
        project.engine.up("local", on_event=quiet)
    assert "1 of 2 hosts are done; run the same command again to continue" in str(failure.value)
    outputs = project.outputs()
    assert outputs["one"] == {**DONE, "changed": 1}
    assert outputs["two"]["ok"] is False
    assert outputs["two"]["message"] == "Break: non-zero return code; why"
    project.playbook(written())  # repaired on the host: the stack's declaration is unchanged
    assert project.engine.preview("local", on_event=quiet).changed
    project.engine.up("local", on_event=quiet)
    outputs = project.outputs()
    assert outputs == {"one": {**DONE, "changed": 0}, "two": {**DONE, "changed": 1}}
    assert not project.engine.preview("local", on_event=quiet).changed


@pytest.mark.nightly
def test_where_nothing_was_done_nothing_is_kept(project: Project) -> None:
    project.playbook({"name": "Break", "ansible.builtin.command": "false"})
    with pytest.raises(EngineFailure, match="host one: Break"):
        project.engine.up("local", on_event=quiet)
    assert "HostConfiguration" not in project.state


@pytest.mark.nightly
def test_a_refresh_finds_what_was_changed_by_hand(project: Project) -> None:
    project.engine.up("local", on_event=quiet)
    (project.paths.root / "on" / "two").write_text("by hand")
    project.engine.refresh("local", on_event=quiet)
    outputs = project.outputs()
    assert outputs["one"]["ok"]
    assert outputs["two"]["message"] == "differs: Write"
    project.engine.up("local", on_event=quiet)
    assert (project.paths.root / "on" / "two").read_text() == "made\n"
    assert project.outputs()["two"] == {**DONE, "changed": 1}


@pytest.mark.nightly
def test_a_host_that_is_off_is_said_in_the_preview_and_keeps_its_state(project: Project) -> None:
    project.engine.up("local", on_event=quiet)
    project.hosts["two"] = {"ansible_host": "127.0.0.1", "ansible_port": 1}
    project.declare()
    preview = project.engine.preview("local", on_event=quiet)
    text = messages(preview)
    assert "host two was not checked: 127.0.0.1:1" in text
    assert "host one: nothing to do" in text
    project.engine.refresh("local", on_event=quiet)
    assert project.outputs()["two"]["ok"]


@pytest.mark.nightly
@pytest.mark.parametrize("secret", [False, True], ids=["a password in it", "declared so"])
def test_a_secret_of_the_inventory_is_nowhere(project: Project, secret: bool) -> None:
    name = "some_word" if secret else "ansible_become_password"
    for host in ("one", "two"):
        project.host(host, **{name: CANARY})
    command = f"sh -c 'echo {{{{ {name} }}}} >&2; false'"
    project.playbook(
        written(f"{{{{ {name} }}}}\n"), {"name": "Fail", "ansible.builtin.command": command, "when": ON_TWO}
    )
    project.declare(secret=secret)
    inventory = Path(project.settings["inventory"])
    events: list[str] = []
    preview = project.engine.preview("local", on_event=lambda event: events.append(str(event)))
    with pytest.raises(EngineFailure, match="host two: Fail") as failure:
        project.engine.up("local", on_event=lambda event: events.append(str(event)))
    on = project.paths.root / "on"
    assert (on / "one").read_text() == f"{CANARY}\n", "it was used"
    for place in (str(failure.value), str(events), str(preview), str(project.messages), project.state):
        assert CANARY not in place
    files = [
        file
        for file in project.paths.root.rglob("*")
        if file.is_file() and not file.is_symlink() and CANARY.encode() in file.read_bytes()
    ]
    assert {file for file in files if file.parent != on} == {inventory}
