"""The result of a run, host by host, from the events of the real ansible-playbook."""

from __future__ import annotations

import pytest
import yaml

from gpuform.checkout.errors import InputError
from gpuform.hosts.events import STOPPED
from tests.runner.conftest import Project, command, file

pytestmark = pytest.mark.tools

ONLY_TWO = "inventory_hostname == 'two'"


def test_each_host_has_its_own_result(project: Project) -> None:
    project.host("three", ansible_connection="ssh", ansible_host="127.0.0.1", ansible_port=1)
    project.write(
        file("Write", "{{ playbook_dir }}/{{ inventory_hostname }}"),
        command("Break", "sh -c 'echo why >&2; exit 4'", when=ONLY_TWO),
        command("Go on", "true", changed_when=False),
    )
    outcome = project.run()
    assert not outcome.ok
    one, two, three = (outcome.hosts[name] for name in ("one", "two", "three"))
    assert one.to_json() == {"ok": True, "changed": 1, "failed": 0, "unreachable": False, "message": ""}
    assert (two.ok, two.changed, two.failed, two.task) == (False, 1, 1, "Break")
    assert two.message == "Break: non-zero return code; why"
    assert (three.ok, three.unreachable, three.changed) == (False, True, 0)
    assert three.message == "cannot be reached (Connection refused); check its address, port and power"
    assert outcome.failures == (f"host three: {three.message}", f"host two: {two.message}")


def test_all_done_is_ok_and_a_second_run_changes_nothing(project: Project) -> None:
    project.write(file("Write", "{{ playbook_dir }}/{{ inventory_hostname }}"))
    first, second = project.run(), project.run()
    assert first.ok
    assert second.ok
    assert [result.changed for result in first.hosts.values()] == [1, 1]
    assert [result.changed for result in second.hosts.values()] == [0, 0]


@pytest.mark.nightly
def test_a_check_says_what_would_change_and_changes_nothing(project: Project) -> None:
    project.write(file("Write", "{{ playbook_dir }}/{{ inventory_hostname }}"))
    outcome = project.run(check=True)
    assert outcome.ok
    assert outcome.hosts["one"].changes == ("Write",)
    assert "+made" in outcome.hosts["one"].diffs[0]
    assert not (project.folder / "ansible" / "playbooks" / "one").exists()


@pytest.mark.nightly
def test_a_failure_that_the_playbook_passes_over_or_mends_is_none(project: Project) -> None:
    project.write(
        command("Passed over", "false", ignore_errors=True),
        {
            "name": "Mended",
            "block": [command("Break", "false")],
            "rescue": [command("Mend", "true", changed_when=False)],
        },
    )
    outcome = project.run()
    assert outcome.ok, outcome.failures
    assert outcome.hosts["one"].failed == 0


@pytest.mark.nightly
@pytest.mark.parametrize("serial", [{"serial": 1}, {}], ids=["behind", "beside"])
def test_hosts_that_another_one_has_stopped_are_not_ok(project: Project, serial: dict[str, int]) -> None:
    failing = command("Break", "false", when="inventory_hostname == 'one'")
    project.write(failing, command("Later", "true"), any_errors_fatal=True, **serial)
    outcome = project.run()
    assert outcome.hosts["one"].message == "Break: non-zero return code"
    assert outcome.hosts["two"].to_json() == {
        "ok": False, "changed": 0, "failed": 0, "unreachable": False, "message": STOPPED,
    }  # fmt: skip


@pytest.mark.nightly
def test_a_host_that_no_later_play_is_about_is_done_when_all_of_another_play_fail(project: Project) -> None:
    """For example a CPU host when the driver fails on every GPU host: Ansible ends the run there."""
    project.groups = {"gpu": ["one"], "cpu": ["two"]}
    project.write(command("Prepare", "true"))
    playbook = project.folder / "ansible" / "playbooks" / "site.yml"
    task = command("Break", "false")
    last = {"name": "GPUs", "hosts": "gpu", "gather_facts": False, "tasks": [task]}
    playbook.write_text(playbook.read_text() + yaml.safe_dump([last]))
    outcome = project.run()
    assert outcome.hosts["one"].message == "Break: non-zero return code"
    assert outcome.hosts["two"].ok
    later = {"name": "Later", "hosts": "gpu:cpu", "gather_facts": False, "tasks": [command("Later", "true")]}
    playbook.write_text(playbook.read_text() + yaml.safe_dump([later]))
    assert project.run().hosts["two"].message == STOPPED


@pytest.mark.nightly
def test_each_item_that_failed_is_said(project: Project) -> None:
    project.write(command("Loop", "sh -c 'echo no {{ item }} >&2; exit {{ item }}'", loop=[0, 3, 4]))
    message = project.run().hosts["one"].message
    assert "no 3" in message
    assert "no 4" in message
    assert "no 0" not in message


@pytest.mark.nightly
def test_a_playbook_that_cannot_be_read_is_the_runs_failure(project: Project) -> None:
    project.write({"name": "Nothing of this name", "ansible.builtin.nothing": {}})
    outcome = project.run()
    assert not outcome.ok
    assert len(outcome.failures) == 1
    assert "ansible.builtin.nothing" in outcome.failures[0]
    assert not outcome.hosts["one"].ok


@pytest.mark.nightly
def test_a_limit_asks_for_those_hosts_only(project: Project) -> None:
    project.groups["pool_t4"] = ["two"]
    project.write(command("Write", "true"))
    assert list(project.run(limit=["one"]).hosts) == ["one"]
    assert list(project.run(limit=["pool_t4"]).hosts) == ["two"]
    assert list(project.run(limit=["one", "pool_t4"]).hosts) == ["one", "two"]
    with pytest.raises(
        InputError, match="limit: three is neither a host nor a group with hosts; the hosts are one"
    ):
        project.run(limit=["three"])


@pytest.mark.nightly
def test_an_unknown_playbook_is_bad_input(project: Project) -> None:
    project.write(command("Write", "true"), name="other.yml")
    with pytest.raises(InputError, match=r"playbook: site\.yml is not in .*; the playbooks are: other\.yml"):
        project.run()


@pytest.mark.nightly
def test_a_fact_for_us_comes_with_the_result_and_no_other(project: Project) -> None:
    fact = {"gpuform_status": {"kernel": "6.1"}, "other": "x"}
    project.write({"name": "Tell", "ansible.builtin.set_fact": fact})
    assert project.run().hosts["one"].facts == {"kernel": "6.1"}
