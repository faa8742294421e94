"""ansible/inventory/hosts.py as Ansible starts it, and keys and hashes that are read from disk."""

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

from infra.config import KEY, load, parse
from infra.inventory import content, inventory, keys, read, text
from infra.model.errors import InputError
from tests.plan.hosts_fields import HOSTS

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
    assert read(done.stdout) == inventory(load(ROOT / "Pulumi.onprem-dev.yaml"))
    assert text(read(done.stdout)) == (ROOT / "tests/golden/onprem-dev/inventory.json").read_text()


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
    assert done.stderr == "pools[0].hosts[1]: host 'a' is already in pool c; name it in one place only\n"


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
    theirs, ours = read(done.stdout), inventory(load(ROOT / "Pulumi.onprem-dev.yaml"))
    assert theirs["_meta"]["hostvars"] == ours["_meta"]["hostvars"]
    assert theirs["gpu"] == ours["gpu"]


def test_keys_are_read_from_the_projects_folder(with_key: Path) -> None:
    assert keys(parse(HOSTS), with_key) == {"mirror.asc": ARMOR}
    found = inventory(parse(HOSTS), with_key)["_meta"]["hostvars"]["gpu-1"]
    assert found["nvidia_driver_repository"]["key"] == ARMOR


def test_a_key_that_cannot_be_used_is_bad_input(tmp_path: Path) -> None:
    file = tmp_path / "mirror.asc"
    with pytest.raises(InputError) as caught:
        keys(parse(HOSTS), tmp_path)
    assert str(caught.value) == (
        f"cluster.toolkit.repository.key: {file}: No such file or directory; "
        "name the file with the repository's public key"
    )
    for content_ in (b"\x99\x01\x0d", b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n"):
        file.write_bytes(content_)
        with pytest.raises(InputError, match=r"is not an ASCII-armored .*; write it with `gpg --armor"):
            keys(parse(HOSTS), tmp_path)


def test_the_hash_sees_every_role_and_the_inventory_and_nothing_that_tools_leave(tmp_path: Path) -> None:
    for folder in ("roles/driver/tasks", "playbooks"):
        (tmp_path / "ansible" / folder).mkdir(parents=True)
    task = tmp_path / "ansible/roles/driver/tasks/main.yml"
    task.write_text("- a\n")
    first = content("{}", tmp_path)
    assert first == content("{}", tmp_path)
    assert first != content("{ }", tmp_path)
    (tmp_path / "ansible/roles/driver/__pycache__").mkdir()
    (tmp_path / "ansible/roles/driver/__pycache__/x.pyc").write_bytes(b"\0")
    (tmp_path / "ansible/roles/driver/tasks/.main.yml.swp").write_bytes(b"\0")
    assert first == content("{}", tmp_path)
    task.write_text("- b\n")
    second = content("{}", tmp_path)
    assert second != first
    shutil.move(task, task.with_name("other.yml"))
    assert content("{}", tmp_path) not in (first, second)


def test_the_text_is_the_same_for_the_same_environment() -> None:
    env = load(ROOT / "Pulumi.onprem-dev.yaml")
    assert text(inventory(env)) == text(inventory(env))
