"""What the plan promises for a node is what the simulated operands offer with the plan's ConfigMaps.

NVIDIA's types parse those in between, and the simulator shares no code with the plan.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from infra.config import parse
from infra.model import offer
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import gpu_operator, sharing
from lab.simulator import device_plugin, gfd, keys, kubelet, mig_manager
from lab.simulator.actions import NodeMeta
from lab.simulator.configs import DEVICE_PLUGIN, EMPTY, MIG_FILE, MIG_PARTED, NvidiaConfig
from lab.simulator.world import Config, World
from lab.toolchain import Toolchain
from tests.lab.simulator.worlds import make_pod, make_world

pytestmark = pytest.mark.tools

T4 = {"machine": "g1.4xlarge"}
ONE, FOUR = {"machine": "g4.p1.40g"}, {"machine": "g4.p4.40g"}
SEVEN: dict[str, Any] = {"kind": "mig", "layout": "all-1g.5gb"}
CERN: dict[str, Any] = {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}
MPS = {**T4, "sharing": {"kind": "mps", "replicas": 3}}
SHARE = {"replicas": 2}
KEEP = {"replicas": 3, "rename": False, "fail_requests_greater_than_one": False}


def mig(machine: dict[str, str], block: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**machine, "sharing": {**block, **more}}


# The operator's strategy and the pools of one environment.
ENVIRONMENTS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "CERN and Bumble": (
        "mixed",
        [
            {**T4, "sharing": {"kind": "time_slicing", "replicas": 4}},
            mig(ONE, CERN),
            mig(FOUR, {"kind": "mig", "layout": {"1g.5gb": 3, "2g.10gb": 2}}, name="all-3x1g.5gb_2x2g.10gb"),
            FOUR,
            {**T4, "sharing": {"kind": "time_slicing", **KEEP}},
        ],
    ),
    "some of a node's GPUs": (
        "mixed",
        [mig(FOUR, CERN, devices=[2, 0]), mig(FOUR, SEVEN, devices=[3]), mig(FOUR, SEVEN), FOUR],
    ),
    "shares of slices": (
        "mixed",
        [
            mig(ONE, SEVEN, share=SHARE),
            mig(ONE, SEVEN, share=KEEP),
            mig(FOUR, CERN, share=SHARE),
            mig(FOUR, CERN, share=SHARE, devices=[0, 1]),
            mig(ONE, {"kind": "mig", "layout": "all-1g.5gb+me"}, share=SHARE),
        ],
    ),
    "single": ("single", [mig(ONE, SEVEN), mig(FOUR, SEVEN, share=SHARE), mig(ONE, SEVEN, share=KEEP), MPS]),
    "MPS beside mixed": ("mixed", [MPS, mig(ONE, CERN), FOUR, {**ONE, "sharing": MPS["sharing"]}]),
    "a strategy for each pool": (
        "none",
        [
            mig(ONE, SEVEN, strategy="single"),
            mig(ONE, CERN, strategy="mixed"),
            mig(FOUR, SEVEN, strategy="single", share=SHARE),
            FOUR,
            MPS,
        ],
    ),
    "nothing but MPS": ("mixed", [MPS]),
}  # fmt: skip


def environment(name: str) -> Environment:
    strategy, pools = ENVIRONMENTS[name]
    named = [{"name": f"p{index}", "nodes": 1, **pool} for index, pool in enumerate(pools)]
    cluster = {"kind": "embedded"}
    return parse(
        {"name": "e", "cluster": cluster, "gpu_operator": {"mig_strategy": strategy}, "pools": named}
    )


@pytest.fixture(scope="module")
def binary(toolchain: Toolchain) -> Path:
    if toolchain.locate("nvidia-config").path is None and shutil.which("go") is None:
        pytest.skip("nvidia-config is not built and go is not on PATH")
    return toolchain.path("nvidia-config")


def read(binary: Path, kind: str, text: str) -> Config:
    async def once() -> Any:
        helper = NvidiaConfig(binary)
        try:
            return await helper.read(kind, text, "")
        finally:
            await helper.close()

    found = asyncio.run(once())
    assert isinstance(found, Config), found
    return found


def grown(env: Environment, pool: Pool, binary: Path) -> World:
    """A node of the pool after the MIG manager is done; the other operands run with their configuration."""
    (gpu,) = pool.gpus
    node: dict[str, Any] = {"gpu": gpu.pci.partition(":")[2], "count": pool.gpu_count}
    annotations: dict[str, str] = {}
    wanted, layouts = sharing.mig_config_name(pool), sharing.mig_parted_config_map(env)
    if wanted:
        assert layouts is not None
        asked = {keys.MIG_CONFIG: wanted, keys.MIG_STATE: "pending"}
        before: World = make_world(**node, labels=asked, operands=("mig-manager",))
        before.configs["uid-mig-manager-1"] = read(binary, MIG_PARTED, layouts["data"][MIG_FILE])
        said = [action for action in mig_manager.act(before) if isinstance(action, NodeMeta)]
        assert said[-1].labels[keys.MIG_STATE] == "success"
        annotations = {key: text for key, text in said[-1].annotations.items() if text is not None}
    plugin = sharing.device_plugin_config_map(env)
    key = sharing.pool_labels(env, pool).get(keys.PLUGIN_CONFIG)
    assert (plugin is None) == (key is None)
    config = read(binary, DEVICE_PLUGIN, plugin["data"][key] if plugin else EMPTY)
    operands = ("driver", "device-plugin", "gfd", "mig-manager")
    if config.strategy == "mps":
        operands += ("mps-control-daemon",)
    strategy = gpu_operator.values(env)["mig"]["strategy"]
    world: World = make_world(
        **node,
        annotations=annotations,
        env=strategy,
        strategy=config.strategy,
        config=dict(config.data),
        operands=operands,
    )
    return world


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_node_offers_what_was_promised(name: str, binary: Path) -> None:
    env = environment(name)
    for pool in env.pools:
        world = grown(env, pool, binary)
        pod, config = world.running("device-plugin"), world.config("device-plugin")
        assert pod
        assert config
        assert device_plugin.problem(world, pod, config) is None
        found = {resource: len(ids) for resource, ids in device_plugin.offered(world).items()}
        assert found == sharing.offered(env, pool), pool.name
        assert tuple(sorted(found)) == offer.gpu_resources(env.strategy(pool), pool)
        assert world.gpu
        labels = gfd.labels(world, world.gpu, config, pod, "595.91.07")
        assert (labels["nvidia.com/gpu.product"],) == offer.products(env.strategy(pool), pool), pool.name


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_who_may_ask_for_two(name: str, binary: Path) -> None:
    """Requests for several shares are refused where declared; never for whole GPUs beside shared slices."""
    env = environment(name)
    for pool in env.pools:
        world = grown(env, pool, binary)
        for resource, count in sharing.offered(env, pool).items():
            if count < 2:
                continue
            refused = False
            try:
                kubelet.allocate(world, make_pod(asks={resource: 2}), device_plugin.offered(world), set())
            except kubelet.Refused as error:
                refused = "maximum request size for shared resources is 1" in str(error)
            assert refused is offer.one_per_pod(pool, resource), (pool.name, resource)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_what_is_resolved_means_the_same(name: str) -> None:
    env = environment(name)
    assert parse(env.resolved()) == env
    assert parse(env.resolved()).resolved() == env.resolved()


def test_the_operator_has_no_strategy_exactly_where_pools_differ() -> None:
    found = {name: gpu_operator.values(environment(name))["mig"]["strategy"] for name in ENVIRONMENTS}
    assert found == {
        "CERN and Bumble": "mixed",
        "some of a node's GPUs": "mixed",
        "shares of slices": "mixed",
        "single": "single",
        "MPS beside mixed": "",
        "a strategy for each pool": "",
        "nothing but MPS": "none",
    }


def test_a_strategy_of_the_operator_would_break_it(binary: Path) -> None:
    """Counter-check: the environment variable overrides the configuration, and MPS fails under mixed."""
    env = environment("MPS beside mixed")
    config = grown(env, env.pools[0], binary).config("device-plugin")
    assert config
    forced: World = make_world(gpu="1db1", strategy="mps", config=dict(config.data), env="mixed")
    pod = forced.running("device-plugin")
    assert pod
    assert "not supported with MPS" in (device_plugin.problem(forced, pod, config) or "")
