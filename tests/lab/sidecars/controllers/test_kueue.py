"""Kueue's own chart, controller, CRDs and webhooks: installed, used and removed as on a real cluster."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.lab.sidecars.controllers.kueue_site import API, GPU, NAMESPACE, Queues, manager
from tests.waiting import until

pytestmark = pytest.mark.cluster


def test_a_job_within_quota_runs_and_one_beyond_it_waits_with_the_reason(queues: Queues) -> None:
    assert not manager(queues.cluster), "it runs only while its release exists"
    queues.install()
    (pod,) = queues.items("pods", NAMESPACE)
    assert pod["spec"]["nodeName"] == "cpu-0"
    # The release is ready: nothing may fail now, and nothing may slip through.
    queues.kueue("ResourceFlavor", "default", {})
    queues.queue("team", {"cpu": "4"})
    limits = {"name": "cpu", "nominalQuota": "-4"}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [limits]}]}]
    with pytest.raises(AssertionError, match=r'admission webhook "vclusterqueue.kb.io" denied the request'):
        queues.kueue("ClusterQueue", "wrong", {"resourceGroups": groups})
    queues.job("fits", "team", {"cpu": "3"})
    queues.runs("fits", "team")
    queues.job("waits", "team", {"cpu": "3"})
    queues.waits("waits", "team", lambda said: "insufficient unused quota for cpu in flavor default" in said)
    # Its aggregated API, as the chart installs it, says the place in the queue.
    path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/team/pendingworkloads"
    waiting = json.loads(queues.kubectl("get", "--raw", path))["items"]
    assert [one["positionInClusterQueue"] for one in waiting] == [0]
    # With the rights of its ServiceAccount, not of an administrator: nothing is missing in the chart's role.
    assert "forbidden" not in queues.log()
    before = queues.cluster.pids()
    queues.kubectl("delete", "jobs,localqueues", "--all", "-n", "team")
    queues.kubectl("delete", "clusterqueues,resourceflavors", "--all")
    queues.remove()
    until(lambda: not manager(queues.cluster), what="it runs on, but its release is removed")
    assert {**queues.cluster.pids(), "kueue": before["kueue"]} == before
    queues.kubectl("run", "free", "--image=none", "-n", "team")


@pytest.mark.nightly
def test_two_teams_borrow_and_give_back(kueue: Queues) -> None:
    """By reclaiming within the cohort; what was preempted returns once there is room."""
    shared = {"cohortName": "org", "preemption": {"reclaimWithinCohort": "Any"}}
    for team in ("left", "right"):
        kueue.queue(team, {"cpu": "3"}, **shared)
    kueue.job("own", "left", {"cpu": "3"})
    kueue.runs("own", "left")
    time.sleep(1.1)  # the newest goes first, by admission times in whole seconds
    kueue.job("borrows", "left", {"cpu": "3"})
    kueue.runs("borrows", "left")
    until(lambda: kueue.borrowed("left"), ["3"].__eq__)
    kueue.job("reclaims", "right", {"cpu": "3"})
    kueue.runs("reclaims", "right")
    assert kueue.condition("borrows", "left", "Preempted")["reason"] == "InCohortReclamation"
    kueue.waits("borrows", "left", lambda said: "insufficient" in said)
    assert kueue.running("own", "left"), "what the team has of its own stays"
    kueue.kubectl("delete", "job", "reclaims", "-n", "right")
    kueue.runs("borrows", "left")


@pytest.mark.nightly
@pytest.mark.parametrize(("strategy", "passes"), [("StrictFIFO", False), ("BestEffortFIFO", True)])
def test_only_a_strict_queue_keeps_the_order(kueue: Queues, strategy: str, passes: bool) -> None:
    team = strategy.lower()
    kueue.queue(team, {"cpu": "3"}, queueingStrategy=strategy)
    kueue.job("first", team, {"cpu": "2"})
    kueue.runs("first", team)
    kueue.job("second", team, {"cpu": "2"})
    kueue.waits("second", team, lambda said: "insufficient" in said)
    kueue.job("small", team, {"cpu": "1"})
    if passes:
        kueue.runs("small", team)
        return
    time.sleep(3)  # as long as an admission takes in the other case
    assert not kueue.running("small", team)
    kueue.kubectl("delete", "job", "first", "-n", team)
    kueue.runs("second", team)
    kueue.runs("small", team)


@pytest.mark.nightly
def test_a_preempted_job_returns(kueue: Queues) -> None:
    meta = {"name": "urgent"}
    kueue.apply({"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": meta, "value": 1000})
    kueue.queue("urgency", {"cpu": "3"}, preemption={"withinClusterQueue": "LowerPriority"})
    kueue.job("patient", "urgency", {"cpu": "2"})
    kueue.runs("patient", "urgency")
    kueue.job("pressing", "urgency", {"cpu": "2"}, lasts="3s", priority="urgent")
    kueue.runs("pressing", "urgency")
    assert kueue.condition("patient", "urgency", "Preempted")["reason"] == "InClusterQueue"
    kueue.runs("patient", "urgency")
    done = json.loads(kueue.kubectl("get", "job", "pressing", "-n", "urgency", "-o", "json"))
    assert done["status"]["succeeded"] == 1


@pytest.mark.nightly
def test_quota_alone_starts_a_part_of_a_job(kueue: Queues) -> None:
    """It knows no nodes. test_planned_queues.py has the topology, with which the job starts as a whole."""
    kueue.operator()
    for index in range(3):
        kueue.offers(kueue.node(f"gpu-{index}", "20b2", 8), {"gpu": 8})
    kueue.queue("counted", {GPU: "32"})
    kueue.job("parts", "counted", {GPU: "8"}, pods=4)
    kueue.runs("parts", "counted", pods=3)


@pytest.mark.nightly
def test_an_upgrade_and_a_removal_lose_nothing(kueue: Queues, tmp_path: Path) -> None:
    kueue.queue("live", {"cpu": "3"})
    kueue.job("runs", "live", {"cpu": "2"})
    kueue.runs("runs", "live")
    kueue.job("waits", "live", {"cpu": "2"})
    kueue.waits("waits", "live", lambda said: "insufficient" in said)
    before = [one["metadata"]["uid"] for one in kueue.items("pods,jobs,workloads", "live")]
    first = manager(kueue.cluster)
    # A changed configuration is another process; until it serves, the old one does: no request fails.
    text = yaml.safe_load((kueue.chart / "values.yaml").read_text())["managerConfig"]
    config = (
        text["controllerManagerConfigYaml"]
        + "\nfairSharing:\n  preemptionStrategies: [LessThanInitialShare]\n"
    )
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"managerConfig": {"controllerManagerConfigYaml": config}}))
    refused: list[str] = []
    with asking(kueue, refused) as asked:
        kueue.install("-f", str(values))
        until(lambda: len(manager(kueue.cluster)) == 1 and manager(kueue.cluster) != first)
    assert refused == []
    assert len(asked) > 5
    assert [one["metadata"]["uid"] for one in kueue.items("pods,jobs,workloads", "live")] == before
    kueue.remove()
    until(lambda: not manager(kueue.cluster))
    assert kueue.running("runs", "live")
    assert {one["metadata"]["name"] for one in kueue.items("jobs", "live")} == {"runs", "waits"}
    kueue.forget()
    kueue.install()
    kueue.kueue("ResourceFlavor", "default", {})
    kueue.queue("live", {"cpu": "3"})
    # It knows no admission of the time before: a Job that runs is stopped, and queued as the other one.
    jobs = ("runs", "waits")
    said = lambda job: str(kueue.condition(job, "live", "QuotaReserved").get("message"))  # noqa: E731
    (last,) = until(
        lambda: [one for one in jobs if "insufficient" in said(one)], what=lambda: kueue.why("runs", "live")
    )
    (other,) = set(jobs) - {last}
    kueue.runs(other, "live")
    kueue.kubectl("delete", "job", other, "-n", "live")
    kueue.runs(last, "live")


@contextmanager
def asking(site: Queues, refused: list[str]) -> Iterator[list[float]]:
    """Create Jobs as a dry run, one after the other, while the context lasts."""
    over, asked = threading.Event(), []
    labels = {"kueue.x-k8s.io/queue-name": "live"}
    pod = {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}
    meta = {"generateName": "dry-", "namespace": "live", "labels": labels}
    text = json.dumps(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": {"spec": pod}}}
    )

    def ask() -> None:
        while not over.is_set():
            asked.append(time.monotonic())
            try:
                site.kubectl("create", "--dry-run=server", "-f", "-", input=text)
            except AssertionError as error:
                refused.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield asked
    finally:
        over.set()
        thread.join()
