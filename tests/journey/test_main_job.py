"""The main job and README's commands as a new user runs them, and other changes; also killed or interrupted.

tests/stack/recover has releases at each point of an installation and an upgrade.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml

from tests.docs.pages import README, commands, not_shown
from tests.journey.conftest import Checkout, cloned, close, offers
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine]


FIRST, *FOLLOWING = commands(README)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Checkout, str]]:
    """A clone in which `make up` has run once, and what that printed."""
    assert FIRST == "make up"
    checkout = cloned(tmp_path_factory.mktemp("up") / "checkout")
    try:
        yield checkout, checkout.shell(FIRST)
    finally:
        close(checkout)


@pytest.fixture(scope="module")
def up(first_run: tuple[Checkout, str]) -> Checkout:
    """The clone; tests restore its stack file."""
    return first_run[0]


@pytest.fixture(scope="module")
def printed(first_run: tuple[Checkout, str]) -> str:
    return first_run[1]


@pytest.fixture
def edited(up: Checkout) -> Iterator[Checkout]:
    """Has its stack file restored after the test, but not the cluster."""
    file = up.paths.root / "Pulumi.local.yaml"
    before = file.read_text()
    yield up
    file.write_text(before)


@pytest.fixture
def restored(edited: Checkout) -> Checkout:
    edited.gpuform("local", "up")
    return edited


RULES = "updated PrometheusRule monitoring/gpuform-recorded"
"""The rules contain the pools' numbers of GPUs and their sharing."""


def changes(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Verb and name of each change, without fields and the hashes in names of ConfigMaps."""
    verbs = ("created", "updated", "replaced", "deleted")
    lines = (line for line in done.stdout.splitlines() if line.startswith(verbs))
    named = (" ".join(line.partition(": ")[0].split()) for line in lines)
    return sorted(re.sub(r"-[0-9a-f]{8}$", "", name) for name in named)


@pytest.fixture(scope="module")
def first_status(up: Checkout) -> dict[str, Any]:
    """What `gpuform status` says after the first run, for the tests that change nothing."""
    return up.status()


def pods(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Pods by namespace and name without generated suffixes."""
    found = {}
    for pod in status["pods"]:
        words = pod["name"].split("-")
        short = "-".join(words[:-2]) if pod["namespace"].startswith("neighbours") else pod["name"]
        found[f"{pod['namespace']}/{short}"] = pod
    return found


def test_every_pool_offers_what_the_sources_show(first_status: dict[str, Any]) -> None:
    assert offers(first_status) == {
        "t4-shared": [{"nvidia.com/gpu.shared": 4}] * 2,
        "a100-mig": [{"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-2g.10gb": 2}],
        "a100-7": [{"nvidia.com/mig-1g.5gb": 7}],
        "a100-whole": [{"nvidia.com/gpu": 4}],
        "v100": [{"nvidia.com/gpu": 4}],
        "g4dn-shared": [{"nvidia.com/gpu": 3}],
        "cpu": [{}, {}],
    }


def test_cern_three_neighbours_run_on_shares_and_on_slices(first_status: dict[str, Any]) -> None:
    found = pods(first_status)
    for name in ("simulation", "inference", "notebook"):
        assert found[f"neighbours-time-sliced/{name}"]["phase"] == "Running"
        assert found[f"neighbours-time-sliced/{name}"]["node"].startswith("t4-shared-")
        assert found[f"neighbours-mig/{name}"]["node"] == "a100-mig-0"
        assert found[f"neighbours-mig/{name}"]["phase"] == "Running"


def test_cern_tf_gpu_bumble_pinned_and_no_gpu_land_where_they_should(
    first_status: dict[str, Any],
) -> None:
    found = pods(first_status)
    assert found["examples/tf-gpu"]["node"].startswith("t4-shared-")
    assert found["examples/pod-a100"]["node"] == "a100-whole-0"
    assert found["examples/no-gpu"]["node"].startswith("cpu-")
    assert {pod["phase"] for name, pod in found.items() if name.startswith("examples/")} == {"Running"}


def test_cern_operands_are_seen_running_and_the_validator_completed(first_status: dict[str, Any]) -> None:
    operands = [pod for pod in first_status["pods"] if pod["namespace"] == "gpu-operator"]
    running = {pod["name"].rsplit("-", 1)[0] for pod in operands if pod["phase"] == "Running"}
    assert {
        "nvidia-driver-daemonset",
        "nvidia-container-toolkit-daemonset",
        "nvidia-device-plugin-daemonset",
        "nvidia-dcgm-exporter",
        "nvidia-operator-validator",
        "nvidia-mig-manager",
        "gpu-feature-discovery",
        "gpu-operator-node-feature-discovery-worker",
    } <= running
    completed = [pod for pod in operands if pod["name"].startswith("nvidia-cuda-validator")]
    assert completed
    assert {pod["phase"] for pod in completed} == {"Succeeded"}


def test_the_output_ends_with_tables_the_report_and_what_is_simulated(up: Checkout, printed: str) -> None:
    assert "gpu.shared 4" in printed
    assert "mig-2g.10gb 2, mig-3g.20gb 1" in printed
    assert "simulated: nodes, GPU operator components" in printed
    report = up.paths.state / "report" / "index.html"
    assert "report: .gpuform/report/index.html" in printed
    assert "a100-mig" in report.read_text()


def test_the_state_holds_no_readable_kubeconfig(up: Checkout) -> None:
    (file,) = up.paths.state.glob("engine/backend/.pulumi/stacks/*/local.json")
    resources = json.loads(file.read_text())["checkpoint"]["latest"]["resources"]
    (outputs,) = (one["outputs"] for one in resources if one["type"] == "pulumi:pulumi:Stack")
    assert "ciphertext" in outputs["kubeconfig"]
    authority = yaml.safe_load(up.paths.kubeconfig.read_text())["users"][0]["user"]
    for secret in authority.values():
        assert str(secret) not in file.read_text()


def test_again_changes_nothing(up: Checkout) -> None:
    done = up.gpuform("local", "up")
    assert changes(done) == []
    assert "unchanged" in done.stdout


def test_replicas_4_to_8_touches_only_what_depends_on_it(edited: Checkout) -> None:
    def edit(env: dict[str, Any]) -> None:
        env["pools"][0]["sharing"]["replicas"] = 8

    before = pods(edited.status())
    edited.change(edit)
    done = edited.gpuform("local", "up")
    assert changes(done) == [
        "replaced ConfigMap gpu-operator/nvidia-time-slicing-config",
        RULES,
        "updated Release gpu-operator-release",
        "updated SimulatedNodes pools-t4-shared",
    ]
    label = 'labels["nvidia.com/device-plugin.config"] slice-4 -> slice-8'
    assert f"updated   SimulatedNodes pools-t4-shared: {label}\n" in done.stdout
    status = edited.status()
    assert offers(status)["t4-shared"] == [{"nvidia.com/gpu.shared": 8}] * 2
    log = (edited.paths.logs / "pulumi-up-local.log").read_text()
    order = [
        log.index(text)
        for text in (
            "ConfigMap sharing-device-plugin created replacement",
            "SimulatedNodes pools-t4-shared updated",
            "Release gpu-operator-release updated",
            "ConfigMap sharing-device-plugin deleted original",
        )
    ]
    assert order == sorted(order)
    after = pods(status)
    users = [name for name in before if name.startswith(("neighbours-time-sliced/", "examples/"))]
    assert len(users) == 6
    assert [after[name] for name in users] == [before[name] for name in users]  # the same pods, still running
    assert {after[name]["phase"] for name in users} == {"Running"}


def test_a_preview_shows_a_replaced_pod_and_a_namespace_that_goes(edited: Checkout) -> None:
    """The provider cannot try the first, and no guard protects the second on the embedded cluster."""

    def edit(env: dict[str, Any]) -> None:
        kept = [work for work in env["workloads"] if work.get("namespace") != "neighbours-mig"]
        for work in kept:
            work["image"] = "tensorflow/tensorflow:2.13.0" if work["name"] == "tf-gpu" else work["image"]
        env["workloads"] = kept

    edited.change(edit)
    effects = json.loads(edited.gpuform("preview", "local", "--json").stdout)["effects"]
    ended = {one["what"]: one for one in effects}
    assert ended["namespace neighbours-mig"]["how"] == "is deleted, with all pods in it"
    assert len(ended["namespace neighbours-mig"]["evicts"]) == 3
    assert ended["Pod examples/tf-gpu"]["how"].startswith("is replaced (")
    assert [pod["owner"] for pod in ended["Pod examples/tf-gpu"]["evicts"]] == ["Pod/tf-gpu"]


@pytest.mark.nightly
def test_an_update_that_was_killed_is_finished_by_the_same_command(edited: Checkout) -> None:
    edited.change(lambda env: env["pools"][0]["sharing"].update(replicas=6))
    killed = edited.begin("local", "up")
    assert killed.stdout is not None
    try:
        assert any(line.startswith("replaced  ConfigMap") for line in killed.stdout)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert edited.offers()["t4-shared"] != [{"nvidia.com/gpu.shared": 6}] * 2
    edited.gpuform("local", "up")
    assert edited.offers()["t4-shared"] == [{"nvidia.com/gpu.shared": 6}] * 2
    assert changes(edited.gpuform("local", "up")) == []


@pytest.mark.nightly
def test_both_ways_of_scraping_find_the_same_exporters(restored: Checkout) -> None:
    """Bumble's row 14; also, another counter list is another ConfigMap, and the exporters get it."""

    message = re.search(r"http://127\.0\.0\.1:\d+", restored.gpuform("local", "status").stdout)
    assert message
    url = f"{message.group()}/api/v1/targets"

    def targets(pool: str) -> dict[str, dict[str, str]]:
        found = [one for one in httpx.get(url).json()["data"]["activeTargets"] if one["scrapePool"] == pool]
        return {one["labels"]["node"]: one["labels"] for one in found if one["health"] == "up"}

    def seven(found: dict[str, dict[str, str]]) -> bool:  # Prometheus discovers targets every few seconds
        return len(found) == 7

    before = until(lambda: targets("serviceMonitor/gpu-operator/nvidia-dcgm-exporter/0"), seven, 60)
    restored.change(
        lambda env: env["monitoring"].update(scrape="scrape_configs", counters=["DCGM_EXP_P2P_STATUS"])
    )
    assert changes(restored.gpuform("local", "up")) == [
        "replaced ConfigMap gpu-operator/gpuform-dcgm-metrics",
        "updated Release gpu-operator-release",
        "updated Release monitoring-release",
    ]
    assert until(lambda: targets("nvidia-dcgm-exporter"), seven, 60) == before
    label = {"instance": "v100-0", "job": "nvidia-dcgm-exporter", "node": "v100-0"}
    assert before["v100-0"] == label
    assert not targets("serviceMonitor/gpu-operator/nvidia-dcgm-exporter/0")


@pytest.mark.nightly
def test_what_was_changed_by_hand_is_mended(restored: Checkout) -> None:
    restored.kubectl("delete", "node", "g4dn-shared-0")
    restored.unsettled("g4dn-shared")
    done = restored.gpuform("local", "up")
    assert "pools g4dn-shared do not offer what was planned: refreshing the state" in done.stdout
    assert changes(done) == ["updated SimulatedNodes pools-g4dn-shared"]
    assert restored.offers()["g4dn-shared"] == [{"nvidia.com/gpu": 3}]
    assert changes(restored.gpuform("local", "up")) == []


@pytest.mark.nightly
def test_pools_with_a_sharing_and_a_driver_of_their_own_are_removed_at_once(restored: Checkout) -> None:
    """Their configuration and the driver for Volta go before their nodes do; then the pools come back."""
    file = restored.paths.root / "Pulumi.local.yaml"
    declared = yaml.safe_load(file.read_text())
    content = yaml.safe_load(file.read_text())
    env = content["config"]["gpuform:environment"]
    gone = {"v100", "g4dn-shared"}
    env["pools"] = [pool for pool in env["pools"] if pool["name"] not in gone]
    file.write_text(yaml.safe_dump(content))
    removed = changes(restored.gpuform("local", "up"))
    assert {"deleted SimulatedNodes pools-v100", "deleted SimulatedNodes pools-g4dn-shared"} <= {*removed}
    assert "updated GpuOperatorRemoval gpu-operator-removal" in removed
    file.write_text(yaml.safe_dump(declared))
    assert "created SimulatedNodes pools-v100" in changes(restored.gpuform("local", "up"))


def test_readmes_commands_work_and_print_what_it_shows(edited: Checkout, printed: str) -> None:
    assert FOLLOWING[-1].startswith("make down")
    output = printed + edited.shell(*FOLLOWING)
    assert not_shown(README, output) == [], output
    assert not edited.running()


@pytest.mark.nightly
def test_up_after_a_kill_goes_on_and_ends_as_if_nothing_had_happened(fresh: Checkout) -> None:
    first = fresh.begin("local", "up")
    assert first.stdout is not None
    assert any("Release " in message for message in first.stdout)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    fresh.gpuform("local", "up")
    assert fresh.offers()["a100-mig"] == [{"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-2g.10gb": 2}]
    assert all(pod["phase"] in ("Running", "Succeeded") for pod in fresh.status()["pods"])
    assert "41 unchanged" in fresh.gpuform("local", "up").stdout
    assert "nothing is left of an interrupted run" in fresh.gpuform("recover", "local").stdout


@pytest.mark.nightly
def test_ctrl_c_ends_the_update_in_order_and_says_how_it_goes_on(fresh: Checkout) -> None:
    first = fresh.begin("local", "up", stderr=subprocess.PIPE)
    assert first.stdout is not None
    while "gpu-operator" not in first.stdout.readline():
        assert first.poll() is None
    first.send_signal(signal.SIGINT)
    _, message = first.communicate(timeout=60)
    assert first.returncode == 130
    assert message.splitlines()[-1] == "interrupted; run the same command again to continue"
    fresh.gpuform("local", "up")
    assert "41 unchanged" in fresh.gpuform("local", "up").stdout
