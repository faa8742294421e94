"""EKS add-ons of one stage: those that nodes need to become Ready, or those that need nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_aws import eks

from components.iam_role import iam_role
from components.manifest import timeouts
from infra.plan import iam
from infra.plan.eks import POD_IDENTITY


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
        for add_on, version in sorted(args.versions.items()):
            full_name, settings = f"{name}-{add_on}", args.settings.get(add_on)
            identities: list[eks.AddonPodIdentityAssociationArgsDict] = []
            attachments: list[pulumi.Resource] = []
            if identity := POD_IDENTITY.get(add_on):
                role, attachments = iam_role(
                    full_name, iam.POD, {full_name: identity.policy}, args.partition, self
                )
                identities = [{"role_arn": role.arn, "service_account": identity.service_account}]
            eks.Addon(
                full_name,
                cluster_name=args.cluster_name,
                addon_name=add_on,
                addon_version=version,
                configuration_values=json.dumps(settings, sort_keys=True) if settings else None,
                pod_identity_associations=identities or None,
                resolve_conflicts_on_create="OVERWRITE",
                resolve_conflicts_on_update="OVERWRITE",  # a manual change would stop an upgrade
                # Its pods must not start before their role has its policy.
                opts=pulumi.ResourceOptions(
                    parent=self, depends_on=attachments, custom_timeouts=timeouts(20, 20, 40)
                ),
            )
        self.register_outputs({})
