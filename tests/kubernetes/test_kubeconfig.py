from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.kubernetes.credentials import as_file
from gpuform.kubernetes.kubeconfig import resolve

pytestmark = pytest.mark.unit

CONFIG = {
    "current-context": "one",
    "clusters": [
        {"name": "c", "cluster": {"server": "https://c:1/"}},
        {"name": "d", "cluster": {"server": "https://d:2"}},
    ],
    "users": [{"name": "u", "user": {"client-certificate": "u.crt", "client-key": "u.key"}}],
    "contexts": [
        {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "n"}},
        {"name": "two", "context": {"cluster": "d", "user": "u"}},
    ],
}


def test_a_kubeconfig_is_contents_a_path_or_the_environments(tmp_path: Any) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(CONFIG))
    contents = resolve({"kubeconfig": yaml.safe_dump(CONFIG)}, {})
    assert (contents.server, contents.namespace, contents.context) == ("https://c:1", "n", "one")
    path = resolve({"kubeconfig": str(file), "context": "two", "namespace": "m"}, {})
    assert (path.server, path.namespace) == ("https://d:2", "m")
    assert path.user["client-certificate"] == str(tmp_path / "u.crt")
    assert resolve({}, {"KUBECONFIG": f"{tmp_path}/none:{file}"}).server == "https://c:1"
    assert resolve({}, {"HOME": str(tmp_path)}).problem.startswith("no kubeconfig found")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {"kubeconfig": yaml.safe_dump(CONFIG), "context": "three"},
            "context 'three' is not in the kubeconfig",
        ),
        ({"kubeconfig": "a: b: canary"}, "it is not valid YAML"),
        ({"kubeconfig": "/none/such"}, "No such file or directory"),
        ({"kubeconfig": "- a\n- b\n"}, "kubeconfig: it is not a kubeconfig"),
        ({"kubeconfig": {"clusters": ["canary"], "contexts": 5}}, "it is not a kubeconfig"),
        (
            {"kubeconfig": {"current-context": "x", "contexts": [{"name": "x", "context": []}, "y"]}},
            "it is not",
        ),
        ({"kubeconfig": "contexts:\n- {}\n"}, "it is not a kubeconfig"),
        ({"kubeconfig": "a: \n  " + "[" * 3000}, "it is not a kubeconfig"),
    ],
)
def test_a_broken_kubeconfig_is_a_reason_not_a_crash(config: Any, problem: str) -> None:
    found = resolve(config, {})
    assert problem in found.problem
    assert "canary" not in found.problem


def test_a_client_key_gets_on_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/none/such")
    with as_file(b"key") as name:
        assert [Path(name).read_bytes() for _ in range(2)] == [b"key", b"key"]  # ssl opens it twice
    assert not Path(name).exists()
