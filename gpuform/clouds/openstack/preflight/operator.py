"""Whether NVIDIA's operator can work on the cluster: it is alone there, and it has a driver for the nodes.

CERN's Magnum installs NVIDIA's operator in ``kube-system`` for the label ``nvidia_gpu_enabled`` [CERN's
webinar]; upstream Magnum has no such label (its user guide, labels). capi-helm-charts install operator and
node feature discovery on every cluster (``charts/cluster-addons/values.yaml``), and magnum-capi-helm does not
change that (``_update_helm_release``). NVIDIA releases driver images for Ubuntu and RHEL
(github.com/NVIDIA/gpu-driver-container, .common-ci.yml).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuform.clouds.existing.preflight import nodes as existing_nodes
from gpuform.clouds.openstack.preflight.account import openstack_cli
from gpuform.clouds.openstack.preflight.project import Project
from gpuform.clouds.openstack.preflight.references import find_images
from gpuform.stack.preflight.check import Check, Result
from infra.model.environment import Environment
from infra.model.openstack.cluster import GPU_LABEL
from infra.plan.magnum import cluster_of, labels

NO_DRIVER_IMAGES = ("fedora-coreos", "fedora-atomic", "flatcar", "coreos")
"""Values of ``os_distro`` for which NVIDIA releases no driver images."""
_LABEL_OFF = f'cluster.labels: {{{GPU_LABEL}: "false"}}'
_SECOND = "Helm refuses a second operator"


def checks(env: Environment) -> Iterator[Check]:
    """Checks of what the cloud brings, and one of each image that nodes with GPUs boot from."""
    cluster, pools = cluster_of(env), [pool for pool in env.pools if pool.gpus]
    if not pools:
        return
    cli = openstack_cli(cluster)
    template = f"{cli} coe cluster template show {cluster.template}"
    if cluster.driver == "capi":
        yield Check("operator of the cluster", template, partial(_judge_charts, env))
    else:
        yield Check(f"label {GPU_LABEL}", f"{template} -c labels", partial(_judge_label, env))
    if env.ownership.toolkit == "host":
        judge = partial(existing_nodes.judge_unknown_toolkit, env)
        yield Check(existing_nodes.ISOLATION, existing_nodes.BY_HAND, judge)
    spec = env.gpu_operator
    if env.ownership.driver != "operator" or spec.driver_repository or spec.driver_image:
        return
    for name in dict.fromkeys(pool.openstack_settings.image for pool in pools):
        subject = f"driver for image {name}" if name else f"driver for template {cluster.template}"
        by_hand = f"{cli} image show {name} -c os_distro" if name else f"{template} -c image_id"
        yield Check(subject, by_hand, partial(_judge_driver, env, name))


def _judge_charts(env: Environment, project: Project) -> Result:
    """What is written in the file states what the cloud's charts do; a default does not."""
    spec = env.gpu_operator
    if project.existing is not None and project.existing.is_in_state:
        return Result("PASS", "the cluster exists, and its charts have been installed")
    if spec.mode != "existing" and "mode" not in spec.model_fields_set:
        fact = f"Cluster API's charts install NVIDIA's operator on every cluster, and {_SECOND}"
        fix = "use gpu_operator.mode: existing, or if your cloud has disabled it, write mode: operator"
        return Result("FAIL", fact, fix)
    if spec.mode != "existing" and "nfd" not in spec.model_fields_set:
        fact = "Cluster API's charts install node feature discovery on every cluster"
        fix = "write gpu_operator.nfd: false, or if your cloud has disabled it, nfd: true"
        return Result("FAIL", fact, fix)
    return Result("PASS", "stated by gpu_operator")


def _judge_label(env: Environment, project: Project) -> Result:
    """Whether the cloud brings an operator; for a cluster that exists this is decided."""
    cluster, existing = cluster_of(env), env.gpu_operator.mode == "existing"
    if project.existing is not None and project.existing.is_in_state:
        return Result("PASS", "the cluster exists, and a change of the label would replace it")
    template = (project.template(cluster.template) or {}).get("labels") or {}
    values = {**template, **labels(env)} if cluster.merge_labels else labels(env)
    if str(values.get(GPU_LABEL, "")).lower() != "true":
        if existing:
            fact = "is not true, so the cloud brings no operator, and gpu_operator.mode is existing"
            return Result("FAIL", fact, "use gpu_operator.mode: operator, or leave the label out")
        return Result("PASS", "is not true, so a cloud that knows it brings no operator")
    if existing:
        return Result("PASS", "is true; whether the cloud knows it, as CERN's does, is not known")
    fact = f"where a cloud knows it, as CERN's does, it installs NVIDIA's operator, and {_SECOND}"
    if GPU_LABEL not in (*template, *cluster.labels):
        fix = f"on such a cloud, before the cluster is created: {_LABEL_OFF}, or gpu_operator.mode: existing"
        return Result("SKIP", f"not known: it follows from the pools; {fact}", fix)
    source = "is in the template, so the cloud knows it" if GPU_LABEL in template else "is true in the file"
    return Result("FAIL", f"{source}: {fact}", f"write {_LABEL_OFF}, or use gpu_operator.mode: existing")


def _judge_driver(env: Environment, image: str | None, project: Project) -> Result:
    template = project.template(cluster_of(env).template) or {}
    image_name = image or str(template.get("image_id") or "")
    images = find_images(image_name, project) if image_name else []
    distro = str(images[0].get("os_distro") or "") if len(images) == 1 else ""
    distro = distro or ("" if image else str(template.get("cluster_distro") or ""))
    if not distro:
        fact = f"not known: no os_distro can be read of image {image_name or 'of the template'}"
        return Result("SKIP", fact)
    if distro not in NO_DRIVER_IMAGES:
        return Result("PASS", f"os_distro {distro}")
    fact = f"os_distro is {distro}, for which NVIDIA publishes no driver images: its pods could not start"
    fix = "use gpu_operator.driver: host with an image that includes the driver, or build one and name it by "
    exists = project.existing is not None and project.existing.is_in_state
    return Result("SKIP" if exists else "FAIL", fact, f"{fix}gpu_operator.driver_repository and driver_image")
