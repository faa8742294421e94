"""ansible/inventory/hosts.py as Ansible starts it; no text of an environment runs on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.paths import Paths
from gpuform.hosts import run
from gpuform.hosts.checks import connections
from gpuform.hosts.checks.expected import parse_host
from gpuform.hosts.checks.expected import read_inventory as read_by_checks
from gpuform.provider.hosts.configuration import inventory_of
from infra.config import KEY, load, parse
from infra.inventory import content_hash, from_json, inventory, mark_unsafe, read_keys, to_json
from infra.model.base.errors import InputError
from infra.plan.inventory import inventory as planned
from infra.plan.inventory import key_paths
from tests.plan.fields import HOSTS

pytestmark = pytest.mark.tools

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "ansible" / "inventory" / "hosts.py"
ARMOR = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nbm90IGEga2V5\n-----END PGP PUBLIC KEY BLOCK-----\n"


def script(cwd: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=cwd,
        env={**{key: value for key, value in os.environ.items() if "GPUFORM" not in key}, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def stack(folder: Path, environment: dict[str, Any]) -> Path:
    file = folder / "Pulumi.own.yaml"
    file.write_text(yaml.safe_dump({"config": {KEY: environment}}))
    return file


@pytest.fixture
def with_key(tmp_path: Path) -> Path:
    (tmp_path / "mirror.asc").write_text(ARMOR)
    return tmp_path


def test_the_list_is_the_default_stacks_from_any_folder(tmp_path: Path) -> None:
    done = script(tmp_path, "--list")
    assert done.returncode == 0, done.stderr
    assert from_json(done.stdout) == inventory(load(ROOT / "Pulumi.onprem-dev.yaml"))
    assert to_json(from_json(done.stdout)) == (ROOT / "tests/golden/onprem-dev/inventory.json").read_text()


def test_one_host_has_what_the_list_says_of_it(tmp_path: Path) -> None:
    listed = json.loads(script(tmp_path, "--list").stdout)["_meta"]["hostvars"]
    assert json.loads(script(tmp_path, "--host", "gpu-4").stdout) == listed["gpu-4"]
    assert json.loads(script(tmp_path, "--host", "missing").stdout) == {}


def test_another_stack_by_its_file_and_by_its_name(tmp_path: Path) -> None:
    environment = {"name": "e", "cluster": {"kind": "hosts"}, "pools": [{"name": "c", "hosts": ["cpu-9"]}]}
    done = script(tmp_path, "--list", GPUFORM_STACK_FILE=str(stack(tmp_path, environment)))
    assert json.loads(done.stdout)["kube_node"] == {"hosts": ["cpu-9"]}
    done = script(tmp_path, "--list", GPUFORM_STACK="local")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "cluster.kind: a cluster of kind embedded has no own hosts; name a stack of kind hosts\n"
    )


def test_bad_input_is_one_line_and_exit_2(tmp_path: Path) -> None:
    environment = {"name": "e", "cluster": {"kind": "hosts"}, "pools": [{"name": "c", "hosts": ["a", "a"]}]}
    done = script(tmp_path, "--list", GPUFORM_STACK_FILE=str(stack(tmp_path, environment)))
    assert (done.returncode, done.stdout) == (2, "")
    fact = "hosts[1]: host 'a' is already in pool c; name it in one place only"
    assert done.stderr == f'Pulumi.own.yaml:9:9: pools[0] "c": {fact}\n'


def test_ansible_itself_reads_it(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "ansible-inventory"
    if not program.exists():
        pytest.skip("ansible-core is not installed (extra: hosts)")
    environment = {**os.environ, "ANSIBLE_LOCAL_TEMP": str(tmp_path), "ANSIBLE_HOME": str(tmp_path)}
    done = subprocess.run(
        [str(program), "-i", str(SCRIPT), "--list"],
        cwd=tmp_path,
        env={**environment, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "WARNING" not in done.stderr
    theirs, ours = from_json(done.stdout), inventory(load(ROOT / "Pulumi.onprem-dev.yaml"))
    assert theirs["_meta"]["hostvars"] == ours["_meta"]["hostvars"]
    assert theirs["gpu"] == ours["gpu"]


def test_keys_are_read_from_the_projects_folder(with_key: Path) -> None:
    assert read_keys(parse(HOSTS), with_key) == {"mirror.asc": ARMOR}
    found = inventory(parse(HOSTS), with_key)["_meta"]["hostvars"]["gpu-1"]
    assert found["nvidia_driver_repository"]["key"] == ARMOR


def test_a_key_that_cannot_be_used_is_bad_input(tmp_path: Path) -> None:
    file = tmp_path / "mirror.asc"
    with pytest.raises(InputError) as caught:
        read_keys(parse(HOSTS), tmp_path)
    assert str(caught.value) == (
        f"cluster.toolkit.repository.key: {file}: No such file or directory; "
        "name the file with the repository's public key"
    )
    for content_ in (b"\x99\x01\x0d", b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n"):
        file.write_bytes(content_)
        with pytest.raises(InputError, match=r"is not an ASCII-armored .*; write it with `gpg --armor"):
            read_keys(parse(HOSTS), tmp_path)


def test_the_hash_sees_every_role_and_the_inventory_and_nothing_that_tools_leave(tmp_path: Path) -> None:
    for folder in ("roles/driver/tasks", "playbooks"):
        (tmp_path / "ansible" / folder).mkdir(parents=True)
    task = tmp_path / "ansible/roles/driver/tasks/main.yml"
    task.write_text("- a\n")
    first = content_hash("{}", tmp_path)
    assert first == content_hash("{}", tmp_path)
    assert first != content_hash("{ }", tmp_path)
    (tmp_path / "ansible/roles/driver/__pycache__").mkdir()
    (tmp_path / "ansible/roles/driver/__pycache__/x.pyc").write_bytes(b"\0")
    (tmp_path / "ansible/roles/driver/tasks/.main.yml.swp").write_bytes(b"\0")
    assert first == content_hash("{}", tmp_path)
    task.write_text("- b\n")
    second = content_hash("{}", tmp_path)
    assert second != first
    shutil.move(task, task.with_name("other.yml"))
    assert content_hash("{}", tmp_path) not in (first, second)


HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
SHOW = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.debug": {"msg": "{{ hostvars[inventory_hostname] }}"}}],
    }
]


def hostile(value: Any, text: str) -> Any:
    """The same structure with that text in place of every string, below every key."""
    if isinstance(value, dict):
        return {key: hostile(item, text) for key, item in value.items()}
    if isinstance(value, list):
        return [hostile(item, text) for item in value]
    return text if isinstance(value, str) else value


def test_no_variable_of_an_inventory_is_a_template(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    payload = f"{{{{ lookup('ansible.builtin.pipe', 'touch {ran}; echo ran') }}}}"
    env = parse(HOSTS)
    found = planned(env, {path: "KEY" for _, path in key_paths(env)})
    hosts = found["_meta"]["hostvars"]
    found["_meta"]["hostvars"] = {name: hostile(given, payload) | HERE for name, given in hosts.items()}
    found["gpu"]["vars"] = {"of_a_group": payload}
    playbooks = tmp_path / "ansible" / "playbooks"
    playbooks.mkdir(parents=True)
    echo = [{**SHOW[0], "tasks": [*SHOW[0]["tasks"], _written(tmp_path)]}]
    (playbooks / "show.yml").write_text(json.dumps(echo))
    paths = Paths(root=tmp_path, state=tmp_path / "state", cache=tmp_path / "cache")
    outcome = run("show.yml", found, ansible=tmp_path / "ansible", paths=paths)
    assert not ran.exists()
    assert outcome.ok, outcome.failures
    for name, given in found["_meta"]["hostvars"].items():
        seen = json.loads((tmp_path / f"{name}.json").read_text())
        assert {key: seen[key] for key in given} == given
    assert json.loads((tmp_path / "gpu-1.json").read_text())["of_a_group"] == payload


def _written(folder: Path) -> dict[str, Any]:
    return {
        "ansible.builtin.copy": {
            "content": "{{ hostvars[inventory_hostname] | to_json }}",
            "dest": f"{folder}/{{{{ inventory_hostname }}}}.json",
            "mode": "0600",
        }
    }


def test_the_inventory_script_marks_what_it_prints(tmp_path: Path) -> None:
    """A repository's key is the one text of any form that an environment lets through."""
    ran = tmp_path / "ran"
    armor = f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n{{{{ lookup('ansible.builtin.pipe', 'touch {ran}') }}}}\n"
    (tmp_path / "key.asc").write_text(armor)
    repository = {**HOSTS["cluster"]["driver"]["repository"], "key": str(tmp_path / "key.asc")}
    cluster = {
        **HOSTS["cluster"],
        "toolkit": {},
        "driver": {**HOSTS["cluster"]["driver"], "repository": repository},
    }
    stack = tmp_path / "Pulumi.own.yaml"
    stack.write_text(yaml.safe_dump({"config": {KEY: {**HOSTS, "cluster": cluster}}}))
    (tmp_path / "show.yml").write_text(json.dumps(SHOW))
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            f"--inventory={ROOT / 'ansible/inventory/hosts.py'}",
            f"--extra-vars={json.dumps(HERE)}",
            "show.yml",
        ],
        cwd=tmp_path,
        env={**os.environ, "GPUFORM_STACK_FILE": str(stack), "ANSIBLE_HOME": str(tmp_path / "ansible")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lookup('ansible.builtin.pipe'" in done.stdout
    assert not ran.exists()


@pytest.mark.parametrize("key", ["ansible_ssh_common_args", "ansible_host", "ansible_user"])
def test_the_checks_of_hosts_give_no_text_to_a_shell(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    payload = "-oUserKnownHostsFile=/k;touch>ran" if key.endswith("args") else "a;touch>ran"
    connections.connect(
        parse_host("gpu-1", {"ansible_user": "root", key: payload}), "ssh", str(tmp_path / "cp")
    )
    assert payload in (tmp_path / "words").read_text()
    assert not (tmp_path / "ran").exists()


def test_a_context_that_a_shell_would_read_is_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """testinfra puts the context inside double quotes."""
    ran = tmp_path / "ran"
    kubectl = tmp_path / "kubectl"
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "gpu-1"}, "status": {"phase": "Running"}}
    kubectl.write_text(f"#!/bin/sh\ncat <<'E'\n{json.dumps({'items': [pod]})}\nE\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    context = f"$(touch>{ran})"
    given = parse_host("gpu-1", {"gpuform_context": context, "gpuform_kubeconfig": str(tmp_path / "k")})
    place = connections.connect(given, "kubectl", "")
    if place.driver:
        place.driver.run("true")
    assert not ran.exists()
    assert place.problem == f"context {context!r} has characters that testinfra's shell would read"


def test_marks_of_texts_are_removed_where_the_list_is_read(tmp_path: Path) -> None:
    """``ansible-inventory --list`` prints them, and both the checks and the resource read that form."""
    env = parse(HOSTS)
    plain = planned(env, {path: "KEY" for _, path in key_paths(env)})
    marked = {**plain, "_meta": {"hostvars": mark_unsafe(plain["_meta"]["hostvars"])}}
    file = tmp_path / "inventory.json"
    file.write_text(json.dumps(plain))
    wanted = read_by_checks(file)
    file.write_text(json.dumps(marked))
    assert read_by_checks(file) == wanted
    assert inventory_of({"inventory": json.dumps(marked)}) == plain
