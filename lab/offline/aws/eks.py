"""``aws:eks``. A cluster has the address of the embedded control plane, if the run has one."""

from __future__ import annotations

from collections.abc import Mapping

from lab.offline.aws.row import ResourceRow, arn_template, split_words

_MOMENT = "2026-01-01T00:00:00Z"  # made up, and constant so that outputs do not change

ROWS: Mapping[str, ResourceRow] = {
    "aws:eks/cluster:Cluster": ResourceRow(
        "eks.CreateCluster",
        id="{name}",
        replaces=split_words(
            "accessConfig.bootstrapClusterCreatorAdminPermissions bootstrapSelfManagedAddons "
            "encryptionConfig- kubernetesNetworkConfig.ipFamily kubernetesNetworkConfig.serviceIpv4Cidr name "
            "outpostConfig roleArn"
        ),
        outputs={
            "arn": arn_template("eks", "cluster/{name}"),
            "clusterId": "",
            "createdAt": _MOMENT,
            "status": "ACTIVE",
            "platformVersion": "eks.1",
            "endpoint": "{endpoint}",
            "certificateAuthority": {"data": "{certificate}"},
            "identities": [{"oidcs": [{"issuer": "https://oidc.eks.{region}.amazonaws.com/id/{HEX}"}]}],
            "version": "1.34",
            "vpcConfig": {"clusterSecurityGroupId": "sg-{hex}", "vpcId": "vpc-{hex}"},
            "kubernetesNetworkConfig": {"serviceIpv4Cidr": "172.20.0.0/16", "ipFamily": "ipv4"},
            "accessConfig": {"authenticationMode": "CONFIG_MAP"},
        },
        parameters={
            "enabledClusterLogTypes": "logging.clusterLogging[0].types",
            "vpcConfig": "resourcesVpcConfig",
        },
        defaults={"bootstrapSelfManagedAddons": True},
        name_input="name",
        renewed_outputs={"platformVersion": ("version",)},
        deletion_guard="deletionProtection",
    ),
    "aws:eks/nodeGroup:NodeGroup": ResourceRow(
        "eks.CreateNodegroup",
        id="{inputs[clusterName]}:{name}",
        replaces=split_words(
            "amiType capacityType clusterName diskSize instanceTypes launchTemplate.id launchTemplate.name "
            "nodeGroupName nodeGroupNamePrefix nodeRoleArn remoteAccess subnetIds"
        ),
        outputs={
            "arn": arn_template("eks", "nodegroup/{inputs[clusterName]}/{name}/{hex}"),
            "status": "ACTIVE",
            "resources": [{"autoscalingGroups": [{"name": "eks-{name}-{hex}"}]}],
            "version": "1.34",
            "releaseVersion": "{hex}",
            "capacityType": "ON_DEMAND",
        },
        parameters={"nodeRoleArn": "nodeRole", "subnetIds": "subnets"},
        name_input="nodeGroupName",
        renewed_outputs={"releaseVersion": ("version", "launchTemplate")},
    ),
    "aws:eks/addon:Addon": ResourceRow(
        "eks.CreateAddon",
        id="{inputs[clusterName]}:{inputs[addonName]}",
        replaces=split_words("addonName clusterName namespaceConfig"),
        outputs={
            "arn": arn_template("eks", "addon/{inputs[clusterName]}/{inputs[addonName]}/{hex}"),
            "createdAt": _MOMENT,
            "modifiedAt": _MOMENT,
            "addonVersion": "v1.0.0-eksbuild.1",
        },
        parameters={
            "resolveConflictsOnCreate": "resolveConflicts",
            "resolveConflictsOnUpdate": "UpdateAddon:resolveConflicts",
        },
        documents=("configurationValues",),
        renewed_outputs={"modifiedAt": ("addonVersion", "configurationValues", "podIdentityAssociations")},
    ),
    "aws:eks/accessEntry:AccessEntry": ResourceRow(
        "eks.CreateAccessEntry",
        id="{inputs[clusterName]}:{inputs[principalArn]}",
        replaces=split_words("clusterName principalArn type"),
        outputs={
            "accessEntryArn": arn_template("eks", "access-entry/{inputs[clusterName]}/{hex}"),
            "createdAt": _MOMENT,
            "modifiedAt": _MOMENT,
            "userName": "{inputs[principalArn]}",
        },
        defaults={"type": "STANDARD"},
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": ResourceRow(
        "eks.AssociateAccessPolicy",
        id="{inputs[clusterName]}#{inputs[principalArn]}#{inputs[policyArn]}",
        replaces=split_words("accessScope clusterName policyArn principalArn"),
        outputs={"associatedAt": _MOMENT, "modifiedAt": _MOMENT},
        tagged=False,
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": ResourceRow(
        "eks.CreatePodIdentityAssociation",
        id="a-{hex}",
        replaces=split_words("clusterName namespace serviceAccount"),
        outputs={
            "associationArn": arn_template("eks", "podidentityassociation/{inputs[clusterName]}/{id}"),
            "associationId": "{id}",
        },
        documents=("policy",),
    ),
}
