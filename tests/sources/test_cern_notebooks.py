"""CERN's notebooks on Kubeflow: an editor, a minimum of CPU and memory, a number of GPUs (FACTS 1, 10)."""

from __future__ import annotations

import pytest

from infra.config import parse
from infra.model.errors import InputError
from infra.plan import workloads

pytestmark = pytest.mark.unit


def test_cern_row_10_notebooks_with_a_minimum_of_cpu_and_memory_and_a_gpu() -> None:
    """The form's fields: editor, minimum CPU, minimum memory in Gi, number of GPUs, vendor."""
    own = {"kind": "notebook", "pool": "a100", "cpu": 2, "memory": "8Gi", "count": 1}
    works = [{**own, "name": one, "user": one, "editor": one} for one in ("jupyterlab", "vscode")]
    pool = {"name": "a100", "machine": "g4.p1.40g", "nodes": 2}
    env = {"name": "e", "cluster": {"kind": "embedded"}, "pools": [pool], "workloads": works}
    for one in workloads.manifests(parse(env)):
        if one["kind"] == "StatefulSet":
            (container,) = one["spec"]["template"]["spec"]["containers"]
            requested = {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"}
            assert container["resources"]["requests"] == requested
    with pytest.raises(InputError, match="less than an editor needs"):
        parse({**env, "workloads": [{**works[0], "cpu": "100m"}]})
