"""The kubeconfig of a stack's own cluster is on disk only while it is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.clouds import CLOUDS
from gpuform.engine import Engine
from gpuform.engine.files import EngineFiles
from gpuform.stack.cluster_access import ClusterAccess, read_only_kubeconfig, stack_kubeconfig
from infra.model.environment import Environment
from lab.toolchain import Toolchain
from tests.build.aws_environments import aws
from tests.build.environments import on

pytestmark = pytest.mark.unit

AWS, OPENSTACK = CLOUDS["aws"].access, CLOUDS["openstack"].access


class Answering:
    """An engine that has only outputs."""

    def __init__(self, outputs: dict[str, Any]) -> None:
        self.given = outputs

    def outputs(self, stack: str, show_secrets: bool = False) -> dict[str, Any]:
        assert (stack, show_secrets) == ("prod", True)
        return self.given


AT_AWS = aws({"machine": "g4dn.xlarge"})
AT_OPENSTACK = on("openstack", {"machine": "g2.5xlarge"})


@pytest.mark.parametrize(("env", "rules"), [(AT_AWS, AWS), (AT_OPENSTACK, OPENSTACK)])
def test_kubeconfig_of_a_created_cluster_is_private_and_removed(
    tmp_path: Path, env: Environment, rules: ClusterAccess
) -> None:
    paths = Paths(tmp_path, tmp_path / "state", tmp_path / "cache")
    engine = cast(Engine, Answering({"kubeconfig": "kind: Config\n"}))
    with stack_kubeconfig(env, rules, paths, engine, "prod") as (file, context):
        assert (file.read_text(), context) == ("kind: Config\n", None)
        assert file.stat().st_mode & 0o777 == 0o600
    assert not file.exists()


@pytest.mark.parametrize("outputs", [{}, {"kubeconfig": ""}, {"kubeconfig": None}])
def test_stack_that_was_never_created_has_no_kubeconfig(tmp_path: Path, outputs: dict[str, Any]) -> None:
    paths = Paths(tmp_path, tmp_path / "state", tmp_path / "cache")
    with (
        pytest.raises(Failure, match="stack prod: has no cluster yet; run `up` first"),
        stack_kubeconfig(AT_AWS, AWS, paths, cast(Engine, Answering(outputs)), "prod"),
    ):
        pass


@pytest.mark.parametrize("made", [False, True])
def test_openstack_stack_uses_the_embedded_cluster_until_created(
    tmp_path: Path, made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an `up` from this checkout, the stack's own cluster is used instead of the embedded one."""
    paths = Paths(tmp_path, tmp_path / "state", tmp_path / "cache")
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\n")
    if made:
        resource = {"type": "openstack:containerinfra/cluster:Cluster", "id": "c-1", "urn": "u"}
        file = EngineFiles(paths).checkpoint("gpuform", "prod")
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"checkpoint": {"latest": {"resources": [resource]}}}))
    answer = {"kubeconfig": "kind: Config\n"}
    monkeypatch.setattr(Engine, "outputs", lambda self, stack, show_secrets=False: answer)
    with read_only_kubeconfig(AT_OPENSTACK, OPENSTACK, paths, "prod", Toolchain(paths)) as (found, _):
        assert (found.read_text() == "kind: Config\n") if made else found == paths.kubeconfig
