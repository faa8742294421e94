"""The caller's identity, and whether the region and its zones are available to it."""

from __future__ import annotations

from collections.abc import Iterator

from gpuform.checkout.errors import Failure
from gpuform.clouds.aws.api import Refused
from gpuform.stack.preflight.aws import Aws, home
from gpuform.stack.preflight.check import Check, Judged
from infra.model.aws import AwsCluster

NOT_OF_EKS = ("use1-az3", "usw1-az2", "cac1-az3")
"""Zone ids in which a cluster's subnets must not be (EKS user guide, subnet requirements)."""


def credentials(cluster: AwsCluster) -> Check:
    """The caller's identity: every other check needs valid credentials."""
    by_hand = f"aws sts get-caller-identity --region {home(cluster.region)}"

    def judge(aws: Aws) -> Judged:
        try:
            who = aws.ask("sts", "get_caller_identity", region=aws.home)
        except Failure as failure:
            return Judged("FAIL", failure.fact, "set AWS_PROFILE, or: aws sso login, or: aws configure")
        return Judged("PASS", f"account {who['Account']} as {who['Arn']}")

    return Check("credentials", by_hand, judge)


def region(cluster: AwsCluster) -> Check:
    """The region exists and the account has it: regions since 2019 must be enabled (AWS account guide)."""
    name = cluster.region
    by_hand = f"aws ec2 describe-regions --all-regions --region-names {name} --region {home(name)}"

    def judge(aws: Aws) -> Judged:
        try:
            found = aws.ask("ec2", "describe_regions", region=aws.home, AllRegions=True, RegionNames=[name])[
                "Regions"
            ]
        except Refused as refused:
            if refused.code != "InvalidParameterValue":
                raise
            found = []
        if not found:
            return Judged("FAIL", "AWS has no such region", "write another one as cluster.region")
        status = found[0].get("OptInStatus", "opt-in-not-required")
        if status == "not-opted-in":
            return Judged(
                "FAIL", "not enabled for the account", f"aws account enable-region --region-name {name}"
            )
        return Judged("PASS", "enabled")

    return Check(f"region {name}", by_hand, judge)


def zones(cluster: AwsCluster) -> Iterator[Check]:
    """The network's zones exist, under this account's zone names, and accept new machines."""
    names = cluster.network.zones
    listed = " ".join(names)

    def judge(aws: Aws) -> Judged:
        found = aws.ask("ec2", "describe_availability_zones")["AvailabilityZones"]
        there = {zone["ZoneName"]: zone.get("State", "available") for zone in found}
        missing = [name for name in names if name not in there]
        if missing:
            fact = f"the account has no {', '.join(missing)}"
            return Judged("FAIL", fact, f"zones of the region: {', '.join(sorted(there))}")
        excluded = [
            f"{zone['ZoneName']} is {zone['ZoneId']}"
            for zone in found
            if zone["ZoneName"] in names and zone.get("ZoneId") in NOT_OF_EKS
        ]
        if excluded:
            fact = f"{', '.join(excluded)} in this account, where EKS creates no control plane"
            return Judged("FAIL", fact, "declare another zone for the network")
        troubled = [f"{name} is {there[name]}" for name in names if there[name] != "available"]
        if troubled:
            return Judged("FAIL", "; ".join(troubled), "write other zones, or wait")
        return Judged("PASS", ", ".join(names))

    yield Check(
        "zones", f"aws ec2 describe-availability-zones --zone-names {listed} --region {cluster.region}", judge
    )
