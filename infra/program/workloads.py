"""Arguments of a workload's component."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from components.custom_resources import BlueGreenArgs, ScalingRemovalArgs
from components.workloads import WorkloadArgs
from infra.model.environment import Environment
from infra.model.workload.workload import (
    DeploymentWorkload,
    InferenceWorkload,
    JobWorkload,
    NotebookWorkload,
    Workload,
)
from infra.plan import workloads


def arguments(
    env: Environment,
    workload: Workload,
    kubeconfig: pulumi.Input[str] | None = None,
    scaled_by: Sequence[pulumi.Resource] = (),
    served_by: Sequence[pulumi.Resource] = (),
) -> WorkloadArgs:
    """Objects of a workload on the environment's pools.

    Raises InputError if the pools cannot hold it, ValueError if ``update: {kind: blue_green}``, which our own
    provider does, has no kubeconfig.
    """
    workloads.check(env, workload)
    return WorkloadArgs(
        controller=workloads.controller(env, workload),
        claim=workloads.claim_template(env, workload),
        service=workloads.service(env, workload),
        minutes=_minutes(env, workload),
        blue_green=_blue_green(env, workload, kubeconfig),
        runtime=workloads.runtime(env, workload),
        scaled=workloads.scaling_objects(env, workload),
        scaling_removal=_scaling_removal(env, workload, kubeconfig),
        scaled_by=scaled_by,
        served_by=served_by,
    )


def _minutes(env: Environment, workload: Workload) -> tuple[int, int] | None:
    if isinstance(workload, JobWorkload):
        return (workload.wait_minutes, workload.wait_minutes) if workload.wait_minutes else None
    return None if isinstance(workload, NotebookWorkload) else workloads.wait_minutes(env, workload)


def _scaling_removal(
    env: Environment, workload: Workload, kubeconfig: pulumi.Input[str] | None
) -> ScalingRemovalArgs | None:
    """None without kubeconfig, and for an InferenceService: KServe itself sets the declared number."""
    is_scaled = isinstance(workload, InferenceWorkload) and workload.scale and not workload.model
    if not is_scaled or kubeconfig is None:
        return None
    return ScalingRemovalArgs(
        kubeconfig=kubeconfig, context=env.context, namespace=workload.namespace, name=workload.name
    )


def _blue_green(
    env: Environment, workload: Workload, kubeconfig: pulumi.Input[str] | None
) -> BlueGreenArgs | None:
    if not isinstance(workload, DeploymentWorkload) or not (update := workload.blue_green):
        return None
    if kubeconfig is None:
        raise ValueError(f"{workload.name}: update: {{kind: blue_green}} needs the kubeconfig of the cluster")
    service = workloads.service(env, workload)
    assert service is not None  # the model requires one
    return BlueGreenArgs(
        kubeconfig=kubeconfig,
        context=env.context,
        deployment=workloads.controller(env, workload),
        service=service,
        step=update.step,
        switch_at=workload.switch_at,
        deadline_seconds=update.deadline_seconds or workloads.wait_minutes(env, workload)[0] * 60,
    )
