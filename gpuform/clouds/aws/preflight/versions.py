"""Pinned versions: Kubernetes, add-ons and node images are still available in this region."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuform.clients.aws.api import Refused
from gpuform.clouds.aws.preflight.account_api import Aws
from gpuform.clouds.aws.preflight.quotas import pools
from gpuform.stack.preflight.check import Check, Judged
from infra.model import images
from infra.model.environment import Environment
from infra.plan import eks, node_groups

_NO_ADD_ON = ("ResourceNotFoundException", "InvalidParameterException")
_NO_AMI = ("InvalidAMIID.NotFound", "InvalidAMIID.Malformed", "InvalidAMIID.Unavailable")


def checks(env: Environment) -> Iterator[Check]:
    cluster = node_groups.cluster_of(env)
    here = f"--region {cluster.region}"
    by_hand = f"aws eks describe-cluster-versions --cluster-versions {cluster.version} {here}"
    judge = partial(_kubernetes, cluster.version, cluster.support)
    yield Check(f"Kubernetes {cluster.version}", by_hand, judge)
    for name, version in eks.add_ons(env).items():
        asked = f"--addon-name {name} --kubernetes-version {cluster.version} {here}"
        query = "--query 'addons[].addonVersions[].addonVersion' --output text"
        judge = partial(_add_on, name, version, cluster.version)
        yield Check(f"add-on {name}", f"aws eks describe-addon-versions {asked} {query}", judge)
    for parameter, (what, image) in _parameters(env).items():
        judge = partial(_parameter, parameter, image, cluster.version)
        yield Check(f"{what} {image.key}", f"aws ssm get-parameter --name {parameter} {here}", judge)
    for pin in dict.fromkeys(pin for pin in cluster.images.values() if not images.is_alias(pin)):
        by_hand = f"aws ec2 describe-images --image-ids {pin} {here}"
        yield Check(f"image {pin}", by_hand, partial(_ami, pin))


def _parameters(env: Environment) -> dict[str, tuple[str, images.Image]]:
    """SSM parameters of dated aliases: the AMI for Karpenter, the release for a managed node group."""
    version = node_groups.cluster_of(env).version
    found = {}
    for pool in pools(env):
        release = node_groups.release_parameter(env, pool)
        if release is not None:
            karpenters = images.ssm_parameter(pool.image, version, env.ami(pool))
            what = "image" if pool.by_karpenter else "release of image"
            found[karpenters if pool.by_karpenter else release] = (what, pool.image)
    return found


def _kubernetes(version: str, support: str, aws: Aws) -> Judged:
    """Must have the support that the cluster is created with (`components/eks_cluster.py`), or standard."""
    found = aws.ask("eks", "describe_cluster_versions", clusterVersions=[version])["clusterVersions"]
    (one, *_) = [*(one for one in found if one.get("clusterVersion") == version), {}]
    status = one.get("versionStatus") or one.get("status", "").upper().replace("-", "_")
    if status == "STANDARD_SUPPORT":
        return Judged("PASS", "in standard support")
    newer = "write a newer one as cluster.version"
    if status == "EXTENDED_SUPPORT":
        if support == "extended":
            return Judged("PASS", "in extended support")
        fact = "in extended support, but the cluster has standard support only"
        return Judged("FAIL", fact, f"{newer}, or cluster.support: extended")
    return Judged("FAIL", f"EKS reports it as {status}" if status else "EKS no longer offers it", newer)


def _add_on(name: str, version: str, kubernetes: str, aws: Aws) -> Judged:
    named = {"addonName": name, "kubernetesVersion": kubernetes}
    found = aws.find(_NO_ADD_ON, "eks", "describe_addon_versions", **named)
    there = [one for add_on in found.get("addons", ()) for one in add_on["addonVersions"]]
    if version in (one["addonVersion"] for one in there):
        return Judged("PASS", version)
    if not there:
        fact = f"EKS has no version of it for Kubernetes {kubernetes}"
        return Judged("FAIL", fact, "write another cluster.version")
    defaults = [
        one for one in there if any(fits.get("defaultVersion") for fits in one.get("compatibilities", []))
    ]
    default = (defaults or there)[0]["addonVersion"]
    fact = f"EKS has no {version} for Kubernetes {kubernetes}"
    return Judged("FAIL", fact, f"write {default} as cluster.add_ons.{name}")


def _parameter(name: str, image: images.Image, kubernetes: str, aws: Aws) -> Judged:
    found = aws.find(("ParameterNotFound",), "ssm", "get_parameter", Name=name)
    if found:
        return Judged("PASS", found["Parameter"]["Value"])
    newest = _newest(image, kubernetes, aws)
    fix = f"{newest}, the newest" if newest else "another date"
    return Judged("FAIL", "AWS has no such image in this region", f"pin {fix}, in cluster.images")


def _newest(image: images.Image, kubernetes: str, aws: Aws) -> str | None:
    """The dated alias of AWS's newest image of this kind; None if that is unknown, too."""
    name = images.newest_parameter(image, kubernetes)
    try:
        return images.alias(image, str(aws.ask("ssm", "get_parameter", Name=name)["Parameter"]["Value"]))
    except Refused:
        return None


def _ami(pin: str, aws: Aws) -> Judged:
    found = aws.find(_NO_AMI, "ec2", "describe_images", ImageIds=[pin]).get("Images", ())
    if found and (state := found[0].get("State", "available")) == "available":
        return Judged("PASS", found[0].get("Name", pin))
    fact = state if found else "does not exist, or is not shared with the account"
    return Judged("FAIL", fact, "pin another one in cluster.images")
