"""Every command in broken environments: exit code 0, 1 or 2, the reason on stderr, never a traceback."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.cli.main import app
from gpuform.clients.openstack.api import Api
from gpuform.hosts.events import HostResult, Outcome
from lab.plane.layout import kubeconfig
from tests.build.aws_stacks import own_checkout
from tests.openstack.authority import write_certificates

pytestmark = pytest.mark.unit

OF_A_STACK = (
    *("status", "top", "report", "images", "up", "up --yes --skip-preflight", "drift", "recover", "destroy"),
    *(
        "destroy --yes",
        "preview",
        "preview --offline",
        "doctor",
        "preflight",
        "rehearse",
        "hosts verify",
        "plan",
    ),
    *("health status", "health tickets", "local start", "local status", "local up", "local env"),
)
OTHERS = (
    *("gpus", "schema", "new {0}/project", "init new --region eu-west-1", "render aws-dev -o {0}/out"),
    *("doctor", "local stop", "check local -f {0}", "whatif local --trace {0}"),
    *("adopt --kubeconfig {0}/kubeconfig", "status --kubeconfig {0}/kubeconfig", "adopt --from {0}"),
    *("hosts apply onprem-dev", "hosts apply onprem-dev --yes", "hosts check onprem-dev"),
    *("hosts status onprem-dev", "hosts verify onprem-dev --backend kubectl", "local nodes aws-dev"),
    *("prices refresh us-west-2", "simulate health node-0 --gpu 0", "simulate fault node-0 --xid 79"),
    *("toolchain build", "toolchain list", "toolchain clean", "images --help", "--version"),
)
STACKS = ("local", "aws-dev", "openstack-dev", "onprem-dev", "there")


def commands(command: Any, name: str = "") -> Iterator[str]:
    if isinstance(command, TyperGroup):
        for part, below in getattr(command, "loaded", command.commands).items():
            yield from commands(below, f"{name} {part}".strip())
    else:
        yield name


def no_home(patch: pytest.MonkeyPatch, folder: Path) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "GPUFORM_CACHE"):
        patch.delenv(name, raising=False)
    patch.setattr(pwd, "getpwuid", Mock(side_effect=KeyError))


def bad_profile(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setenv("AWS_PROFILE", "typo")


def expired_login(patch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "aws").write_text(
        "[default]\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\n"
        "[sso-session s]\nsso_region = us-east-1\nsso_start_url = https://example.org/start\n"
    )


def no_network(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setenv("AWS_ACCESS_KEY_ID", "a")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    patch.setenv("OS_CLIENT_CONFIG_FILE", str(folder / "clouds.yaml"))
    auth = {"auth_url": "https://keystone.lab.test:5000/v3", "username": "a", "password": "b"}
    auth |= {"project_name": "p", "user_domain_name": "Default", "project_domain_name": "Default"}
    (folder / "clouds.yaml").write_text(yaml.safe_dump({"clouds": {"cern": {"auth": auth}}}))


def unreachable_clusters(patch: pytest.MonkeyPatch, folder: Path) -> None:
    write_certificates(folder / "pki", "lab")
    text = kubeconfig("https://127.0.0.1:9", folder / "pki")
    for stack in STACKS:
        file = Paths.here(stack).kubeconfig
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / ".kube").mkdir()
    (folder / ".kube" / "onprem-dev.yaml").write_text(text)
    (folder / "kubeconfig").write_text(text)


def closed_by_a_proxy(patch: pytest.MonkeyPatch, folder: Path) -> None:
    no_network(patch, folder)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        patch.setenv(name, "http://127.0.0.1:9")


Break = Callable[[pytest.MonkeyPatch, Path], None]
ENVIRONMENTS: dict[Break, tuple[str, ...]] = {
    no_home: ("local",),
    bad_profile: ("aws-dev",),
    expired_login: ("aws-dev",),
    no_network: ("aws-dev", "openstack-dev"),
    unreachable_clusters: STACKS,
    closed_by_a_proxy: ("aws-dev",),
}
"""Each with the stacks on which commands are run."""


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No tool is built or on PATH, no credentials, no network but refused connections, 80 columns."""
    refuse = Mock(side_effect=ConnectionRefusedError(111, "Connection refused"))
    no_tool = Mock(side_effect=Failure("tool", "is not built yet", "gpuform toolchain build"))
    unknown = Mock(side_effect=socket.gaierror(-3, "Temporary failure in name resolution"))
    for name in [name for name in os.environ if name.startswith(("AWS_", "OS_", "GPUFORM_", "KUBE"))]:
        monkeypatch.delenv(name)
    root = own_checkout(tmp_path / "checkout")
    cluster = {"kind": "existing", "kubeconfig": str(tmp_path / "kubeconfig")}
    there: dict[str, Any] = {"name": "there", "cluster": cluster}
    there["pools"] = [{"name": "t4", "selector": {"pool": "t4"}, "gpu": {"models": ["T4"], "count": 1}}]
    (root / "Pulumi.there.yaml").write_text(yaml.safe_dump({"config": {"gpuform:environment": there}}))
    for name, value in {
        "GPUFORM_STATE": tmp_path / "state",
        "GPUFORM_CACHE": tmp_path / "cache",
        "HOME": tmp_path,
        "PATH": tmp_path / "bin",
        "AWS_CONFIG_FILE": tmp_path / "aws",
        "AWS_SHARED_CREDENTIALS_FILE": tmp_path / "none",
        "AWS_EC2_METADATA_DISABLED": "true",
        "COLUMNS": "80",
    }.items():
        monkeypatch.setenv(name, str(value))
    (tmp_path / "aws").touch()
    monkeypatch.chdir(root)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # between retries
    monkeypatch.setattr("lab.toolchain.Toolchain.ensure", no_tool)
    off = Outcome({"gpu-1": HostResult(ok=False, unreachable=True, message="cannot be reached")}, 4)
    monkeypatch.setattr("gpuform.hosts.run", lambda *_, **__: off)
    return root


def test_every_command_is_tried() -> None:
    tried = " ".join(f"|{line} " for line in (*OF_A_STACK, *OTHERS))
    assert [name for name in commands(get_command(app)) if f"|{name} " not in tried] == []


@pytest.mark.parametrize("breaks", ENVIRONMENTS, ids=lambda breaks: breaks.__name__)
def test_no_command_ends_in_a_traceback(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, breaks: Break
) -> None:
    breaks(monkeypatch, tmp_path)
    lines = [f"{command} {stack}" for command in OF_A_STACK for stack in ENVIRONMENTS[breaks]]
    bad = {}
    for line in [*lines, *(line.format(tmp_path) for line in OTHERS)]:
        result = CliRunner().invoke(app, line.split(), input="")
        ended = result.exception is None or isinstance(result.exception, SystemExit)
        if not ended or result.exit_code not in (0, 1, 2) or "Traceback" in result.output:
            bad[line] = (result.exit_code, repr(result.exception), result.output[-300:])
        elif result.exit_code and not result.output.strip():
            bad[line] = (result.exit_code, "without a reason", "")
    assert not bad


@pytest.mark.parametrize("words", ["--help", "gpus", "schema", "images aws-prod", "doctor --json"])
def test_a_closed_pipe_is_quiet(words: str, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code = "from gpuform.cli.main import main; main()"
    command = [sys.executable, "-c", code, *words.split()]
    env = {**os.environ, "GPUFORM_STATE": str(tmp_path)}
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, env=env, timeout=60)
    os.close(writing)
    assert (done.returncode in (0, 1), done.stderr) == (True, "")


def test_a_page_of_a_proxy_is_no_answer_of_openstack() -> None:
    response = Mock(status_code=200, json=Mock(side_effect=ValueError("Expecting value")))
    connection = Mock(**{"compute.request.return_value": response})
    with pytest.raises(Failure, match=r"GET nova/flavors: is not a response from OpenStack: .* a proxy"):
        Api(connection).get("nova", "/flavors")


def test_a_user_without_a_home_folder_is_told_to_set_home(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    no_home(monkeypatch, tmp_path)
    result = CliRunner().invoke(app, ["images", "aws-dev"])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: HOME: is not set, and user ")
