"""The kubeconfig of a stack's own cluster is on disk only while it is used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.clouds import CLOUDS
from gpuform.engine import Engine
from gpuform.engine.files import EngineFiles
from gpuform.stack.cluster_access import ClusterAccess, read_only_kubeconfig, stack_kubeconfig
from infra.config import parse
from lab.toolchain import Toolchain
from tests.components.aws_stacks import small

pytestmark = pytest.mark.unit

AWS, OPENSTACK = CLOUDS["aws"].access, CLOUDS["openstack"].access


class Answering:
    """An engine that has only outputs."""

    def __init__(self, outputs: dict[str, Any]) -> None:
        self.given = outputs

    def outputs(self, stack: str, show_secrets: bool = False) -> dict[str, Any]:
        assert (stack, show_secrets) == ("prod", True)
        return self.given


def at_aws() -> Any:
    return parse(small({"name": "t4", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 40}}}))


def at_openstack(**more: Any) -> Any:
    cluster = {"kind": "openstack", "template": "kubernetes-1.30.2-2", "version": "1.30"}
    pool = {"name": "t4", "machine": "g2.5xlarge", "nodes": 1}
    return parse({"name": "research", "cluster": cluster, "pools": [pool], **more})


@pytest.mark.parametrize(("declared", "rules"), [(at_aws, AWS), (at_openstack, OPENSTACK)])
def test_it_is_private_and_goes(tmp_path: Path, declared: Callable[[], Any], rules: ClusterAccess) -> None:
    paths = Paths(tmp_path, tmp_path / "state", tmp_path / "cache")
    engine = cast(Engine, Answering({"kubeconfig": "kind: Config\n"}))
    with stack_kubeconfig(declared(), rules, paths, engine, "prod") as (file, context):
        assert (file.read_text(), context) == ("kind: Config\n", None)
        assert file.stat().st_mode & 0o777 == 0o600
    assert not file.exists()


@pytest.mark.parametrize("outputs", [{}, {"kubeconfig": ""}, {"kubeconfig": None}])
def test_a_stack_that_has_not_been_made_has_none(tmp_path: Path, outputs: dict[str, Any]) -> None:
    paths = Paths(tmp_path, tmp_path / "state", tmp_path / "cache")
    with (
        pytest.raises(Failure, match="stack prod: has no cluster yet; run `up` first"),
        stack_kubeconfig(at_aws(), AWS, paths, cast(Engine, Answering(outputs)), "prod"),
    ):
        pass


@pytest.mark.parametrize("made", [False, True])
def test_a_stack_at_openstack_is_played_here_until_it_is_made(
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
    with read_only_kubeconfig(at_openstack(), OPENSTACK, paths, "prod", Toolchain(paths)) as (found, _):
        assert (found.read_text() == "kind: Config\n") if made else found == paths.kubeconfig
