"""EKS add-ons of one stage: those that nodes need to become Ready, or those that need nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_aws import eks, iam

from components.manifest import within
from infra.plan import trust
from infra.plan.add_ons import POD_IDENTITY, PodIdentity


@dataclass(frozen=True, kw_only=True)
class AddOnsArgs:
    """Pinned versions and optional settings, by add-on name."""

    cluster_name: pulumi.Input[str]
    partition: pulumi.Input[str]
    versions: Mapping[str, str]
    settings: Mapping[str, Mapping[str, Any]]


class AddOns(pulumi.ComponentResource):
    """EKS add-ons at the given versions.

    An add-on that calls AWS gets its own role by Pod Identity.
    """

    def __init__(self, name: str, args: AddOnsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:aws:AddOns", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        for add_on, version in sorted(args.versions.items()):
            self._add_on(add_on, version)
        self.register_outputs({})

    def _add_on(self, add_on: str, version: str) -> None:
        settings = self._args.settings.get(add_on)
        identities, attached = self._identity(add_on, POD_IDENTITY.get(add_on))
        eks.Addon(
            f"{self._name}-{add_on}",
            cluster_name=self._args.cluster_name,
            addon_name=add_on,
            addon_version=version,
            configuration_values=json.dumps(settings, sort_keys=True) if settings else None,
            pod_identity_associations=identities or None,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",  # a manual change would stop an upgrade
            # Its pods must not start before their role has its policy.
            opts=pulumi.ResourceOptions(parent=self, depends_on=attached, custom_timeouts=within(20, 20, 40)),
        )

    def _identity(
        self, add_on: str, identity: PodIdentity | None
    ) -> tuple[list[eks.AddonPodIdentityAssociationArgs], list[pulumi.Resource]]:
        if identity is None:
            return [], []
        name, policy = f"{self._name}-{add_on}", identity.policy
        role = iam.Role(name, assume_role_policy=json.dumps(trust.trust_policy(trust.POD)), opts=self._child)
        attached = iam.RolePolicyAttachment(
            name,
            role=role.name,
            policy_arn=pulumi.Output.format("arn:{0}:iam::aws:policy/{1}", self._args.partition, policy),
            opts=self._child,
        )
        association = eks.AddonPodIdentityAssociationArgs(
            role_arn=role.arn, service_account=identity.service_account
        )
        return [association], [attached]
