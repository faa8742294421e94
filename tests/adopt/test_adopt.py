"""Clusters of others, written down as kubectl prints them, and the environment that declares each.

They have the labels, taints and resources of published clusters: tests/adopt/clusters, with the kind in each.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from gpuform.adopt import declare, objects
from gpuform.adopt.declare import Adopted
from gpuform.checkout.errors import Failure, InputError
from gpuform.cli.main import app
from infra.model.base import labels
from infra.plan import quotas, sharing
from tests.build.clusters import CLUSTER, dump_of, kubernetes

CLUSTERS = sorted(Path(__file__).parent.joinpath("clusters").glob("*.yaml"))
Json = dict[str, Any]


def adopted(items: list[Json], folder: Path) -> Adopted:
    return declare.adopt(objects.read_dump(dump_of(items, folder)), CLUSTER)


def node(name: str, product: str = "Tesla-T4", taints: tuple[str, ...] = (), **tags: str) -> Json:
    own = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": "1", **tags}
    return {"kind": "Node", "name": name, "labels": own, "taints": taints, "offers": {"nvidia.com/gpu": 1}}


@pytest.mark.unit
@pytest.mark.parametrize("file", CLUSTERS, ids=lambda file: file.stem)
class TestPublishedClusters:
    def test_environment_declares_the_cluster(self, file: Path, tmp_path: Path) -> None:
        case = yaml.safe_load(file.read_text())
        result = adopted(case["objects"], tmp_path)
        assert result.document == case["environment"]
        facts = [f"{error.path}: {error.fact}" for error in (*result.without_pool, *result.left_out)]
        assert facts == case["left_out"]

    def test_an_update_sets_no_taint_and_no_label_that_a_node_lacks_but_ours(
        self, file: Path, tmp_path: Path
    ) -> None:
        items = yaml.safe_load(file.read_text())["objects"]
        result = adopted(items, tmp_path)
        env, raw = (
            result.environment,
            {item["name"]: kubernetes(item) for item in items if item["kind"] == "Node"},
        )
        for group in result.groups:
            pool = env.pool(group.name)
            for member in group.nodes:
                live = {json.dumps(one, sort_keys=True) for one in raw[member.name]["spec"]["taints"]}
                planned = [{k: v for k, v in one.items() if v} for one in sharing.pool_taints(env, pool)]
                assert {json.dumps(one, sort_keys=True) for one in planned} <= live
            ours = {labels.POOL: group.name, labels.ENVIRONMENT: "adopted"}
            assert sharing.pool_labels(env, pool) == ours
            assert group.selector.items() <= group.nodes[0].labels.items()

    def test_quotas_are_those_of_the_cluster(self, file: Path, tmp_path: Path) -> None:
        items = yaml.safe_load(file.read_text())["objects"]
        live = {item["namespace"]: item["spec"]["hard"] for item in items if item["kind"] == "ResourceQuota"}
        for quota in quotas.resource_quotas(adopted(items, tmp_path).environment):
            assert quota["spec"]["hard"].items() <= live[quota["metadata"]["namespace"]].items()


@pytest.mark.unit
class TestGroups:
    def test_nodes_of_one_group_with_other_sharing_are_another_pool(self, tmp_path: Path) -> None:
        shared = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
        items = [node("a", agentpool="t4"), node("b", agentpool="t4", product="Tesla-T4-SHARED", **shared)]
        items[1]["offers"] = {"nvidia.com/gpu": 4}
        pools = adopted(items, tmp_path).document["pools"]
        assert [pool["name"] for pool in pools] == ["t4", "t4-2"]
        assert [list(pool["selector"]) for pool in pools] == [["nvidia.com/gpu.product"]] * 2

    def test_two_labels_select_where_one_does_not(self, tmp_path: Path) -> None:
        items = [
            node("a", rack="1", tier="gold"),
            node("b", rack="1", tier="silver", product="NVIDIA-L4"),
            node("c", rack="2", tier="gold", product="NVIDIA-L4"),
            node("d", rack="1", tier="gold"),
        ]
        t4 = next(
            pool for pool in adopted(items, tmp_path).document["pools"] if pool["gpu"]["models"] == ["T4"]
        )
        assert t4["selector"] == {"nvidia.com/gpu.product": "Tesla-T4"}
        items[2]["labels"]["nvidia.com/gpu.product"] = "Tesla-T4"
        shared = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
        items[2]["labels"] |= shared
        items[2]["offers"] = {"nvidia.com/gpu.shared": 4}
        pools = adopted(items, tmp_path).document["pools"]
        assert {"rack": "1", "tier": "gold"} in [pool["selector"] for pool in pools]

    def test_older_names_of_a_product_are_known(self, tmp_path: Path) -> None:
        (pool,) = adopted([node("a", product="A100-SXM4-40GB")], tmp_path).document["pools"]
        assert pool["gpu"]["models"] == ["A100-SXM4-40GB"]

    def test_pool_declares_the_taints_that_all_of_its_nodes_have(self, tmp_path: Path) -> None:
        items = [
            node("a", taints=("team=x:NoSchedule", "gone:NoExecute")),
            node("b", taints=("team=x:NoSchedule",)),
        ]
        document = adopted(items, tmp_path).document
        assert document["gpu_operator"]["gpu_taint"] == {"key": "team", "value": "x"}
        assert [pool.get("taints") for pool in document["pools"]] == [None]

    def test_nodes_of_a_stack_keep_its_names(self, tmp_path: Path) -> None:
        tags = {labels.POOL: "fast", labels.ENVIRONMENT: "prod"}
        document = adopted([node("a", **tags), node("b", product="NVIDIA-L4")], tmp_path).document
        assert document["name"] == "prod"
        assert [pool["name"] for pool in document["pools"]] == ["fast", "l4"]


@pytest.mark.unit
class TestDumps:
    def test_folder_of_lists_is_one_cluster(self, tmp_path: Path) -> None:
        nodes = {"apiVersion": "v1", "kind": "NodeList", "items": [kubernetes(node("a"))]}
        for item in nodes["items"]:
            del item["kind"], item["apiVersion"]  # as in `kubectl cluster-info dump`
        (tmp_path / "nodes.json").write_text(json.dumps(nodes))
        (tmp_path / "pods.yaml").write_text("apiVersion: v1\nkind: List\nitems: []\n")
        assert [item["metadata"]["name"] for item in objects.read_dump(tmp_path).all(objects.NODE)] == ["a"]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("{", "is not JSON"),
            ('{"kind": "Pod", "metadata": {"name": "a"}}', "holds no Node"),
            ('{"kind": "Node", "apiVersion": "v1"}', "holds no Node"),
            ("a: [", "YAML"),
        ],
    )
    def test_bad_dump_is_refused(self, text: str, said: str, tmp_path: Path) -> None:
        file = tmp_path / "dump.json"
        file.write_text(text)
        with pytest.raises(InputError, match=said):
            objects.read_dump(file)

    def test_cluster_without_gpus_fails(self, tmp_path: Path) -> None:
        with pytest.raises(Failure, match="no node has a label or resource of NVIDIA's"):
            adopted([{"kind": "Node", "name": "cpu", "labels": {"kubernetes.io/os": "linux"}}], tmp_path)

    def test_no_secret_of_a_dump_leaves_it(self, tmp_path: Path) -> None:
        secret, items = "planted-secret", [node("a"), node("b", product="NVIDIA-L4")]
        env = [{"name": "KEY", "value": f"{secret}-{number}"} for number in range(25)]
        container = {"name": "c", "image": "x", "env": env, "args": [f"--token={secret}"]}
        items += [
            {"kind": "Secret", "name": f"s{number}", "namespace": "x", "data": {"key": f"{secret}-{number}"}}
            for number in range(25)
        ]
        items += [
            {"kind": "Pod", "name": "p", "namespace": "x", "spec": {"containers": [container]}},
            {
                "kind": "DaemonSet",
                "apiVersion": "apps/v1",
                "name": "d",
                "namespace": "x",
                "spec": {"template": {"spec": {"containers": [container]}}},
            },
            {"kind": "ConfigMap", "name": "m", "namespace": "x", "data": {"key": secret}},
        ]
        result = adopted(items, tmp_path)
        said = json.dumps(result.document) + str(result.without_pool) + str(result.left_out)
        assert secret not in said

    @settings(max_examples=50, deadline=None)
    @given(data=st.data())
    def test_damaged_dump_is_adopted_or_refused(self, data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(CLUSTERS))
        items = [kubernetes(item) for item in yaml.safe_load(file.read_text())["objects"]]
        for _ in range(data.draw(st.integers(1, 3))):
            at: Any = data.draw(st.sampled_from(items))
            while isinstance(at, dict) and at:
                key = data.draw(st.sampled_from(sorted(at)))
                if not isinstance(at[key], dict) or not at[key] or data.draw(st.booleans()):
                    at[key] = data.draw(st.sampled_from([None, "", "x", 7, [], {}, [None], {"a": None}]))
                    break
                at = at[key]
        with TemporaryDirectory() as folder:
            dump = Path(folder) / "dump.json"
            dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
            answer = CliRunner().invoke(app, ["adopt", "--from", str(dump)])
        assert answer.exit_code in (0, 1, 2), answer.exception
        assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.exception
