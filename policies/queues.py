"""Rules over queues: nothing takes a GPU past the queue of its namespace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policies import contract
from policies.pods import containers, namespace, template
from policies.rule import Resource, Rule, items, mapping, text

_NVIDIA = "nvidia.com/"


def _queued(resource: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    space = namespace(resource)
    queues = {
        text(other.props, "metadata", "name")
        for other in resources
        if other.type == contract.LOCAL_QUEUE and text(other.props, "metadata", "namespace") == space
    }
    requested = _gpus(resource)
    if not queues or not requested:
        return
    queue = _queue(resource)
    if queue not in queues:
        problem = f"names queue {queue}, which namespace {space} does not have" if queue else "names no queue"
        yield f"requests {requested} in namespace {space} and {problem}: it takes what queues have promised"


def _gpus(resource: Resource) -> str:
    """What its pods request of NVIDIA's, in words; empty if nothing."""
    names = {
        str(name)
        for container in containers(resource)
        for kind in ("requests", "limits")
        for name in mapping(container, "resources", kind)
        if str(name).startswith(_NVIDIA)
    }
    claims = ["a claim"] if items(template(resource), "spec", "resourceClaims") else []
    return ", ".join([*sorted(names), *claims])


def _queue(resource: Resource) -> str:
    """The queue of the object that Kueue admits: a CronJob's Jobs, or the object itself."""
    path = {contract.BLUE_GREEN: ("deployment",), contract.CRON_JOB: ("spec", "jobTemplate")}
    return str(
        mapping(resource.props, *path.get(resource.type, ()), "metadata", "labels").get(contract.QUEUE, "")
    )


RULES = (
    Rule(
        "gpu-workload-queued",
        "Every GPU workload in a namespace with queues names one of them.",
        "high",
        f"declare queue in the workload, or label it {contract.QUEUE}",
        contract.PODS,
        _queued,
        whole_stack=True,
    ),
)
