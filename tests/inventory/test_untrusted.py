"""Text of an environment is data to Ansible and to ssh's shell: nothing in it runs on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.paths import Paths
from gpuform.hosts import run
from gpuform.provider.hosts.inputs import inventory_of
from infra.config import KEY, parse
from infra.inventory import unsafe
from infra.plan.inventory import inventory, key_paths
from tests.hosts import places
from tests.hosts.expected import expected, read
from tests.plan.hosts_fields import HOSTS

pytestmark = pytest.mark.tools

ROOT = Path(__file__).resolve().parents[2]
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
    found = inventory(env, {path: "KEY" for _, path in key_paths(env)})
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
    places.place(expected("gpu-1", {"ansible_user": "root", key: payload}), "ssh", str(tmp_path / "cp"))
    assert payload in (tmp_path / "words").read_text()
    assert not (tmp_path / "ran").exists()


def test_a_context_that_a_shell_would_read_is_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """testinfra puts the context inside double quotes."""
    ran = tmp_path / "ran"
    kubectl = tmp_path / "kubectl"
    pod = {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "gpu-1"},
        "status": {"phase": "Running"},
    }
    kubectl.write_text(f"#!/bin/sh\ncat <<'E'\n{json.dumps({'items': [pod]})}\nE\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    context = f"$(touch>{ran})"
    given = expected("gpu-1", {"gpuform_context": context, "gpuform_kubeconfig": str(tmp_path / "k")})
    place = places.place(given, "kubectl", "")
    if place.driver:
        place.driver.run("true")
    assert not ran.exists()
    assert place.trouble == f"context {context!r} has characters that testinfra's shell would read"


def test_marks_are_no_part_of_a_text(tmp_path: Path) -> None:
    """``ansible-inventory --list`` prints them, and both the checks and the resource read that form."""
    env = parse(HOSTS)
    plain = inventory(env, {path: "KEY" for _, path in key_paths(env)})
    marked = {**plain, "_meta": {"hostvars": unsafe(plain["_meta"]["hostvars"])}}
    file = tmp_path / "inventory.json"
    file.write_text(json.dumps(plain))
    wanted = read(file)
    file.write_text(json.dumps(marked))
    assert read(file) == wanted
    assert inventory_of({"inventory": json.dumps(marked)}) == plain
