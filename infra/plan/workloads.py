"""The workloads' own objects: requests, tolerations and where each may run."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from infra.model.base import labels
from infra.model.base.errors import InputError
from infra.model.checks import environment
from infra.model.environment import Environment
from infra.model.placement import fit
from infra.model.pool.pool import Pool
from infra.model.workload import matching
from infra.model.workload.matching import Match
from infra.model.workload.workload import (
    DeploymentWorkload,
    InferenceWorkload,
    JobWorkload,
    NotebookWorkload,
    PodWorkload,
    Workload,
)
from infra.plan import (
    blue_green,
    dra,
    kserve,
    notebooks,
    pod_fragment,
    pod_needs,
    rdma,
    scaling,
    serving,
    training,
)
from infra.plan.manifest import Manifest, label_in, manifest, node_affinity, own_labels

_USER = 1000  # any user but root; images that bring their own root user run as this one


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """Every workload's objects, in the order declared."""
    return tuple(manifest for workload in env.workloads for manifest in objects(env, workload))


def objects(env: Environment, workload: Workload) -> tuple[Manifest, ...]:
    """A workload's objects in creation order: what its pods need, then what makes the pods.

    With two colours only the first is created; the other exists only after a change of the pods.
    """
    optional = claim_template(env, workload), service(env, workload), runtime(env, workload)
    parts = [item for item in optional if item]
    main = controller(env, workload)
    if not (isinstance(workload, DeploymentWorkload) and workload.blue_green):
        return (*parts, main, *scaling_objects(env, workload))
    colour = labels.COLOURS[0]
    parts = [blue_green.select_colour(item, colour) if item["kind"] == "Service" else item for item in parts]
    return (*parts, blue_green.with_colour(main, colour, workload.replicas), *scaling_objects(env, workload))


def check(env: Environment, workload: Workload) -> None:
    """Raise InputError, with a path that begins with ``workload``, if the environment cannot hold it.

    For a workload that the environment does not declare itself; its own ones were checked with it.
    """
    if any(own is workload for own in env.workloads):  # by identity: equality of all takes quadratic time
        return
    try:
        declared = env.model_copy(update={"workloads": (workload,)})
        environment.check(declared)
        check_fragments(declared)
    except InputError as error:
        path = error.path.replace("workloads[0]", "workload", 1)
        raise InputError(path, error.fact, error.remedy) from None


def claim_template(env: Environment, workload: Workload) -> Manifest | None:
    """The template of its pods' claims; None if they use an extended resource."""
    pool = _claimed_pool(fit.workload_pools(env, workload))
    return dra.claim_template(pool, workload, _metadata(env, workload)) if pool else None


def service(env: Environment, workload: Workload) -> Manifest | None:
    """The Service in front of its pods, or by which its pods find each other, if it has one."""
    if isinstance(workload, JobWorkload):
        return training.service(workload, _metadata(env, workload))
    if isinstance(workload, NotebookWorkload):
        return notebooks.service(workload, _metadata(env, workload))
    return serving.service(workload, _metadata(env, workload))


def runtime(env: Environment, workload: Workload) -> Manifest | None:
    """The ServingRuntime that its InferenceService names, if KServe serves it."""
    if not isinstance(workload, InferenceWorkload) or workload.model is None:
        return None
    return kserve.runtime(env, workload, _metadata(env, workload))


def scaling_objects(env: Environment, workload: Workload) -> tuple[Manifest, ...]:
    """What measures the workload's pods and sets their number, after what makes the pods."""
    return scaling.objects(env, workload, _metadata(env, workload))


def _metadata(env: Environment, workload: Workload) -> Manifest:
    object_labels = own_labels(env, APP_NAME=workload.name)
    return {"name": workload.name, "namespace": workload.namespace, "labels": object_labels}


def _claimed_pool(pools: Sequence[Pool]) -> Pool | None:
    """The pool with claimed GPUs; the workload names it, since no product selects such a pool."""
    return next((pool for pool in pools if pool.by_claim), None)


def controller(env: Environment, workload: Workload) -> Manifest:
    """The object that makes its pods, or the Pod itself; a Deployment without a colour."""
    manifest = _controller(env, workload)
    if isinstance(workload, InferenceWorkload) and workload.model:
        return kserve.inference_service(workload, workload.model, manifest)
    if workload.pod:
        holder = _pod_of(manifest)
        holder["spec"] = pod_fragment.merged(env, workload, holder["spec"])
    return manifest


def _pod_of(manifest: Manifest) -> Manifest:
    """The pod, or the template of pods."""
    found: Manifest = manifest if manifest["kind"] == "Pod" else manifest["spec"]["template"]
    return found


def check_fragments(env: Environment) -> None:
    """Raise InputError for a ``pod`` that contradicts its workload, or its namespace's Pod Security."""
    for index, work in enumerate(env.workloads):
        if not (work.pod or work.rdma):
            continue
        try:
            pod_fragment.check(env, work, _pod_of(controller(env, work))["spec"])
        except InputError as error:
            raise InputError(f"workloads[{index}].{error.path}", error.fact, error.remedy) from None


def _controller(env: Environment, workload: Workload) -> Manifest:
    metadata = _metadata(env, workload)
    template = {"metadata": {"labels": metadata["labels"]}}
    if workload.queue:
        metadata = training.queue_metadata(metadata, workload)
        if isinstance(workload, DeploymentWorkload):
            # As Kueue's webhook does; a Job's pods are admitted with the Job, and have no queue of their own.
            template = {"metadata": {"labels": metadata["labels"]}}
    annotations = training.pod_annotations(env, workload, fit.workload_pools(env, workload))
    if annotations:
        pod = metadata if isinstance(workload, PodWorkload) else template["metadata"]
        pod["annotations"] = {**pod.get("annotations", {}), **annotations}
    if isinstance(workload, DeploymentWorkload):
        minutes = serving.start_minutes(env, workload, fit.workload_pools(env, workload))
        may_block = fit.update_may_block(env, workload)
        spec = {
            **serving.replicas(workload),
            "selector": {"matchLabels": {labels.APP_NAME: workload.name}},
            "template": {**template, "spec": _pod_spec(env, workload, "Always")},
            **serving.strategy(workload, may_block),
        }
        if isinstance(workload, InferenceWorkload) and not workload.scale and not workload.model:
            # The autoscaler of a former `scale` still owns the number of pods, and may change it again until
            # it is deleted (components' ScalingRemoval).
            unscaled = {labels.PATCH_FORCE: "true", labels.FULL: str(workload.replicas)}
            metadata["annotations"] = {**metadata.get("annotations", {}), **unscaled}
        if minutes != serving.IMAGE_MINUTES:
            spec["progressDeadlineSeconds"] = minutes * 60
        return manifest("Deployment", metadata, "apps/v1", spec=spec)
    if isinstance(workload, JobWorkload):
        spec = {
            **training.job_fields(workload),
            "template": {**template, "spec": _pod_spec(env, workload, "Never")},
        }
        if workload.wait_minutes is None:
            metadata["annotations"] = training.unawaited_annotations()
        return manifest("Job", metadata, "batch/v1", spec=spec)
    if isinstance(workload, NotebookWorkload):
        spec = _pod_spec(env, workload, "Always")
        return notebooks.stateful_set(workload, metadata, template["metadata"], spec)
    return manifest("Pod", metadata, spec=_pod_spec(env, workload, "Always"))


def wait_minutes(env: Environment, workload: Workload) -> tuple[int, int]:
    """Minutes after which a create and an update of the workload fail."""
    start = serving.start_minutes(env, workload, fit.workload_pools(env, workload))
    if not isinstance(workload, DeploymentWorkload):
        return start, start
    return start, start * serving.update_steps(workload, _controller(env, workload)["spec"])


def _pod_spec(env: Environment, workload: Workload, restart: str) -> Manifest:
    pools = fit.workload_pools(env, workload)
    requests = {"cpu": workload.cpu, "memory": workload.memory}
    limits = {"memory": workload.memory}
    for name, amount in training.resources(workload, pools).items():
        requests[name] = limits[name] = amount
    resource = matching.requested_resource(pools, workload)
    if resource:
        requests[resource] = limits[resource] = str(workload.device_count)
    pod_security, container_security = rdma.security(workload, _USER, deepcopy(pod_fragment.CONFINED))
    container: Manifest = {
        "name": workload.name,
        "image": env.image(workload.image),
        "resources": {"requests": requests, "limits": limits},
        "securityContext": container_security,
    }
    claimed_pool = _claimed_pool(pools)
    if claimed_pool:
        container["resources"]["claims"] = [{"name": dra.REQUEST}]
    if workload.command:
        container["command"] = list(workload.command)
    variables = [{"name": key, "value": value} for key, value in workload.env.items()]
    variables += training.rank_variables(workload)
    if variables:
        container["env"] = sorted(variables, key=lambda variable: str(variable["name"]))
    container |= {**serving.container(workload), **training.container(workload)}
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "containers": [container],
        "restartPolicy": restart,
        "securityContext": pod_security,
        **training.pod(workload),
    }
    if claimed_pool:
        name = dra.template_name(claimed_pool, workload)
        spec["resourceClaims"] = [{"name": dra.REQUEST, "resourceClaimTemplateName": name}]
    spec |= pod_needs.fields(env, pools, bool(resource), bool(claimed_pool))
    if workload.runtime_class:
        spec["runtimeClassName"] = workload.runtime_class
    if workload.priority:
        spec["priorityClassName"] = workload.priority
    if workload.pool:
        spec["nodeSelector"] = {labels.POOL: workload.pool}
    if workload.gpu_product:
        spec["nodeSelector"] = {labels.GPU_PRODUCT: workload.gpu_product}
        if workload.queue:  # Kueue chooses a pool by the labels of its flavor, which has no product
            spec["affinity"] = node_affinity(label_in(labels.POOL, sorted(pool.name for pool in pools)))
    if workload.gpu and not claimed_pool:  # a claim says itself what its GPU must have
        spec["affinity"] = _gpu_affinity(matching.matches(env.pools, workload.gpu, workload.slice))
    if isinstance(workload, InferenceWorkload) and workload.near:
        spec["affinity"] = {**spec.get("affinity", {}), "podAffinity": _near_affinity(workload.near)}
    return spec


def _gpu_affinity(matches: Sequence[Match]) -> Manifest:
    """All nodes of pools that satisfy the need as a whole; of other pools the nodes with a matching product.

    Not by ``nvidia.com/gpu.memory``: the product stands for the whole GPU model, NVLink included.
    """
    whole_pools = sorted({match.pool.name for match in matches if match.all_nodes})
    terms = [[label_in(labels.POOL, whole_pools)]] if whole_pools else []
    for match in matches:
        if not match.all_nodes:
            product = label_in(labels.GPU_PRODUCT, sorted(match.products))
            terms.append([label_in(labels.POOL, [match.pool.name]), product])
    return node_affinity(*terms)


def _near_affinity(name: str) -> Manifest:
    """Rather on a node with a pod of that workload than in its zone, rather there than elsewhere.

    Not required: the node of the data may have no GPU, or none that is free.
    """
    selector = {"labelSelector": {"matchLabels": {labels.APP_NAME: name}}}
    weights = ((100, labels.HOSTNAME), (50, labels.ZONE))
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": weight, "podAffinityTerm": {**selector, "topologyKey": key}} for weight, key in weights
        ]
    }
