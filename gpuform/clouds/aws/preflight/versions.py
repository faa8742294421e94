"""Pinned versions: Kubernetes, add-ons and node images are still available in this region."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from gpuform.checkout.errors import Failure, InputError
from gpuform.clients.aws.api import AwsError
from gpuform.clouds.aws.preflight.account import Aws, describe_cluster
from gpuform.clouds.aws.preflight.quotas import pools
from gpuform.stack.preflight import Resources, last_version, recorded, refuse_version
from gpuform.stack.preflight.check import Check, Result
from infra.facts import bad_release
from infra.model.aws.images import Image, alias, is_alias, newest_parameter, ssm_parameter
from infra.model.environment import Environment
from infra.plan import eks, node_groups

_ADD_ON_NOT_FOUND = ("ResourceNotFoundException", "InvalidParameterException")
_AMI_NOT_FOUND = ("InvalidAMIID.NotFound", "InvalidAMIID.Malformed", "InvalidAMIID.Unavailable")


def checks(env: Environment) -> Iterator[Check]:
    cluster = node_groups.cluster_of(env)
    region = f"--region {cluster.region}"
    by_hand = f"aws eks describe-cluster-versions --cluster-versions {cluster.version} {region}"
    judge = partial(_judge_kubernetes, cluster.version, cluster.support)
    yield Check(f"Kubernetes {cluster.version}", by_hand, judge)
    for name, version in eks.add_ons(env).items():
        options = f"--addon-name {name} --kubernetes-version {cluster.version} {region}"
        query = "--query 'addons[].addonVersions[].addonVersion' --output text"
        judge = partial(_judge_add_on, name, version, cluster.version)
        yield Check(f"add-on {name}", f"aws eks describe-addon-versions {options} {query}", judge)
    for parameter, (label, image) in _ssm_parameters(env).items():
        judge = partial(_judge_parameter, parameter, image, cluster.version)
        yield Check(f"{label} {image.key}", f"aws ssm get-parameter --name {parameter} {region}", judge)
    for pin in dict.fromkeys(pin for pin in cluster.images.values() if not is_alias(pin)):
        by_hand = f"aws ec2 describe-images --image-ids {pin} {region}"
        yield Check(f"image {pin}", by_hand, partial(_judge_ami, pin, cluster.version))


def refusals(env: Environment, resources: Resources, live: bool) -> Iterator[InputError]:
    """EKS's limits of upgrades (EKS user guide, update-cluster and rollback-cluster)."""
    cluster, present = node_groups.cluster_of(env), last_version(resources)
    with suppress(Failure, InputError):  # another check says why AWS does not answer
        present = str((describe_cluster(env, Aws(cluster.region)) if live else {}).get("version", present))
    step = f'write "{{next}}", run `gpuform up`, and so on up to {cluster.version}'
    back = f'write "{present}" and run `gpuform up --refresh`; by one version, '
    back += "until 7 days after the upgrade, EKS itself goes back (EKS user guide, rollback-cluster)"
    yield from refuse_version(present, cluster.version, step, back)
    for one in recorded(resources, "aws:eks/nodeGroup:NodeGroup") if "" < present < cluster.version else ():
        if one.get("amiType") != "CUSTOM" and one.get("version", present) != present:
            fact = f"EKS upgrades node groups first, and {one['nodeGroupName']} has {one['version']}"
            yield InputError("cluster.version", fact, f'write "{present}" and run `gpuform up` first')


def _ssm_parameters(env: Environment) -> dict[str, tuple[str, Image]]:
    """SSM parameters of dated aliases: the AMI for Karpenter, the release for a managed node group."""
    version = node_groups.cluster_of(env).version
    parameters = {}
    for pool in pools(env):
        release = node_groups.release_parameter(env, pool)
        if release is not None:
            ami = ssm_parameter(pool.image, version, env.ami(pool))
            label = "image" if pool.by_karpenter else "release of image"
            parameters[ami if pool.by_karpenter else release] = (label, pool.image)
    return parameters


def _judge_kubernetes(version: str, support: str, aws: Aws) -> Result:
    """Must have the support that the cluster is created with (`components/eks_cluster.py`), or standard."""
    versions = aws.query("eks", "describe_cluster_versions", clusterVersions=[version])["clusterVersions"]
    (row, *_) = [*(row for row in versions if row.get("clusterVersion") == version), {}]
    status = row.get("versionStatus") or row.get("status", "").upper().replace("-", "_")
    if status == "STANDARD_SUPPORT":
        return Result("PASS", "in standard support")
    remedy = "write a newer one as cluster.version"
    if status == "EXTENDED_SUPPORT":
        if support == "extended":
            return Result("PASS", "in extended support")
        fact = "in extended support, but the cluster has standard support only"
        return Result("FAIL", fact, f"{remedy}, or cluster.support: extended")
    return Result("FAIL", f"EKS reports it as {status}" if status else "EKS no longer offers it", remedy)


def _judge_add_on(name: str, version: str, kubernetes: str, aws: Aws) -> Result:
    parameters = {"addonName": name, "kubernetesVersion": kubernetes}
    answer = aws.find(_ADD_ON_NOT_FOUND, "eks", "describe_addon_versions", **parameters)
    versions = [row for add_on in answer.get("addons", ()) for row in add_on["addonVersions"]]
    if version in (row["addonVersion"] for row in versions):
        return Result("PASS", version)
    if not versions:
        fact = f"EKS has no version of it for Kubernetes {kubernetes}"
        return Result("FAIL", fact, "write another cluster.version")
    uses = ((row, item) for row in versions for item in row.get("compatibilities", ()))
    default = next((row for row, use in uses if use.get("defaultVersion")), versions[0])["addonVersion"]
    fact = f"EKS has no {version} for Kubernetes {kubernetes}"
    return Result("FAIL", fact, f"write {default} as cluster.add_ons.{name}")


def _judge_parameter(name: str, image: Image, kubernetes: str, aws: Aws) -> Result:
    answer = aws.find(("ParameterNotFound",), "ssm", "get_parameter", Name=name)
    if answer:
        return Result("PASS", answer["Parameter"]["Value"])
    newest = _newest(image, kubernetes, aws)
    fix = f"{newest}, the newest" if newest else "another date"
    return Result("FAIL", "AWS has no such image in this region", f"pin {fix}, in cluster.images")


def _newest(image: Image, kubernetes: str, aws: Aws) -> str | None:
    """The dated alias of AWS's newest image of this kind; None if that is unknown, too."""
    name = newest_parameter(image, kubernetes)
    try:
        return alias(image, str(aws.query("ssm", "get_parameter", Name=name)["Parameter"]["Value"]))
    except AwsError:
        return None


def _judge_ami(pin: str, kubernetes: str, aws: Aws) -> Result:
    """The name of an image of EKS ends in Kubernetes' version and the release (1.34-v20261012)."""
    images = aws.find(_AMI_NOT_FOUND, "ec2", "describe_images", ImageIds=[pin]).get("Images", ())
    if images and (state := images[0].get("State", "available")) == "available":
        name = images[0].get("Name", pin)
        if bad := "-al2023-" in name and bad_release("al2023", name.rpartition("-")[2], kubernetes):
            return Result("FAIL", f"{name} {bad.why}", f"pin al2023@{bad.use} or newer in cluster.images")
        return Result("PASS", name)
    fact = state if images else "does not exist, or is not shared with the account"
    return Result("FAIL", fact, "pin another one in cluster.images")
