"""Each kind of cluster answers every verb in `gpuform.clouds`, and no other code branches on the kind."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from gpuform.checkout.paths import Paths
from gpuform.clouds import CLOUDS
from gpuform.stack.destroy import Teardown
from infra.model.clusters import Cluster

pytestmark = pytest.mark.unit

ROOT = Paths.here().root
KINDS = {
    cluster.model_fields["kind"].annotation: cluster.__name__ for cluster in get_args(get_args(Cluster)[0])
}
TABLES = {"gpuform/provider/guards/loss.py", "lab/rehearse/nodes.py"}
"""Files that take a class from a table by the kind, and do not branch on it."""


def test_every_kind_answers_every_verb() -> None:
    assert set(CLOUDS) == {kind for [kind] in map(get_args, KINDS)}
    assert all(issubclass(cloud.teardown, Teardown) for cloud in CLOUDS.values())


def _branches(file: Path) -> bool:
    text = file.read_text()
    if "cluster.kind" not in text and not any(name in text for name in KINDS.values()):
        return False
    types = re.compile(rf"\b({'|'.join(KINDS.values())})\b")
    return any(
        (isinstance(node, ast.Compare | ast.Subscript) and "cluster.kind" in ast.unparse(node))
        or (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "isinstance"
            and types.search(ast.unparse(node.args[1]))
        )
        for node in ast.walk(ast.parse(text))
    )


def test_no_other_code_branches_on_the_kind() -> None:
    clouds = ROOT / "gpuform/clouds"
    files = [file for top in ("gpuform", "lab") for file in (ROOT / top).rglob("*.py")]
    found = {str(file.relative_to(ROOT)) for file in files if clouds not in file.parents and _branches(file)}
    assert found == TABLES
