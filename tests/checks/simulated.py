"""The simulator's result for a plan, by its pure functions alone: no control plane and no clock.

Its input is what a cluster has of the plan: a node's labels and annotations, ConfigMaps, the chart's values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infra.model.environment import Environment
from infra.model.gpu.machines import Machine
from infra.model.pool.pool import Pool
from infra.plan import gpu_operator, nodes, sharing
from lab.simulator import device_plugin, gfd, keys, kubelet, mig_manager, power
from lab.simulator.actions import NodeMeta
from lab.simulator.objects import Node, parse_node
from lab.simulator.world import Config, World
from tests.checks.judges import JsonLines
from tests.lab.simulator.worlds import RUNNING, make_pod

DRIVER = "595.91.07"
_STEPS = 9


@dataclass
class SimulatedOperator:
    """An environment's operator with its configurations, as parsed by NVIDIA's types."""

    env: Environment
    types: JsonLines

    def __post_init__(self) -> None:
        self.values = gpu_operator.values(self.env)
        self._plugin = _data(sharing.device_plugin_config_map(self.env))
        self._mig = _data(sharing.mig_parted_config_map(self.env))

    def settled(self, pool: Pool, machine: Machine) -> World:
        """A node of the pool on that machine after every operand has acted; asserts that none is stuck."""
        made = nodes.pool_node(self.env, pool, machine, f"{pool.name}-0")
        made["metadata"] |= {"uid": "uid-node-0", "resourceVersion": "1"}
        node = parse_node(made)
        if self.values["migManager"]["enabled"] and machine.model and machine.model.mig_capable:
            wanted = sharing.mig_config_name(pool) or self.values["migManager"]["config"]["default"]
            node.labels[keys.MIG_CONFIG] = wanted
            for client in mig_manager.CLIENTS:  # as the operator does, which keeps an existing "false"
                node.labels.setdefault(f"{keys.DEPLOY}{client}", "true")
            self._cut(node)
        return self._world(node)

    def _cut(self, node: Node) -> None:
        """Let the MIG manager act, and the node boot if the manager reboots it."""
        for _ in range(_STEPS):
            if keys.DOWN_UNTIL in node.annotations:
                node.annotations[keys.DOWN_UNTIL] = "0"
                acts = power.act(self._world(node))
            else:
                pending = node.labels.get(keys.MIG_STATE) == "pending"
                acts = mig_manager.act(self._world(node, clients=not pending))
            for act in acts:
                if isinstance(act, NodeMeta):
                    _merge(node.labels, act.labels)
                    _merge(node.annotations, act.annotations)
        assert node.labels[keys.MIG_STATE] == "success", acts

    def _world(self, node: Node, clients: bool = True) -> World:
        config = self._read(node)
        env = {"MIG_STRATEGY": self.values["mig"]["strategy"]} if self.values["mig"]["strategy"] else {}
        names = ["nfd-worker", "driver", "toolkit", "mig-manager"]
        if clients and node.labels.get(f"{keys.DEPLOY}device-plugin") != "false":
            names += (
                ["device-plugin", "mps-control-daemon"] if config.strategy == "mps" else ["device-plugin"]
            )
        names += ["gfd"] if clients else []
        image = {"driver": f"x/driver:{DRIVER}"}
        manager = {item["name"]: item["value"] for item in self.values["migManager"].get("env", ())}
        own = {"mig-manager": {**env, **manager}}
        pods = [
            make_pod(f"{name}-1", name, env=own.get(name, env), image=image.get(name, "x:1"))
            for name in names
        ]
        configs: dict[str, Any] = {pod.uid: config for pod in pods if pod.operand != "mig-manager"}
        configs["uid-mig-manager-1"] = Config("", data=self._layouts())
        return World(node, RUNNING, pods, configs)

    def _read(self, node: Node) -> Config:
        label = node.labels.get(keys.PLUGIN_CONFIG, "")
        default = self.values["devicePlugin"].get("config", {}).get("default", "")
        text = "version: v1\n"
        if self._plugin:
            key = device_plugin.select_config(label, default, sorted(self._plugin))
            assert isinstance(key, str), key
            text = self._plugin[key]
        answer = self.types.ask(kind="device-plugin", yaml=text)
        assert (answer["error"], answer["lost"]) == (None, []), text
        return Config(label, answer.get("strategy") or "none", answer["config"])

    def _layouts(self) -> dict[str, Any]:
        if not self._mig:
            return {}
        answer = self.types.ask(kind="mig-parted", yaml=self._mig["config.yaml"])
        assert (answer["error"], answer["lost"]) == (None, [])
        found: dict[str, Any] = answer["config"]
        return found


def offers(world: World) -> dict[str, int]:
    pod, config = world.running("device-plugin"), world.config("device-plugin")
    if pod and config:
        assert device_plugin.exit_message(world, pod, config) is None
    return {name: len(ids) for name, ids in device_plugin.offered_devices(world).items()}


def refuses_two(world: World, resource: str) -> bool:
    """Whether the device plugin gives a pod only one device of the resource, as it does for shared ones."""
    try:
        kubelet.allocate(world, make_pod(asks={resource: 2}), device_plugin.offered_devices(world), set())
    except kubelet.AllocationError as error:
        return "maximum request size for shared resources is 1" in str(error)
    return False


def discovered(world: World) -> dict[str, str]:
    pod, config = world.running("gfd"), world.config("gfd")
    assert pod is not None
    assert config is not None
    assert world.gpu is not None
    return gfd.labels(world, world.gpu, config, pod, DRIVER)


def _data(config_map: dict[str, Any] | None) -> dict[str, str]:
    return config_map["data"] if config_map else {}


def _merge(into: dict[str, str], changes: dict[str, str | None]) -> None:
    for key, value in changes.items():
        if value is None:
            into.pop(key, None)
        else:
            into[key] = value
