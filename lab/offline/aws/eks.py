"""``aws:eks``. A cluster has the address of the embedded control plane, if the run has one."""

from __future__ import annotations

from collections.abc import Mapping

from lab.offline.aws.row import Row, arn, words

_MOMENT = "2026-01-01T00:00:00Z"  # made up, and constant so that outputs do not change

ROWS: Mapping[str, Row] = {
    "aws:eks/cluster:Cluster": Row(
        "eks.CreateCluster",
        id="{name}",
        replaces=words(
            "accessConfig.bootstrapClusterCreatorAdminPermissions bootstrapSelfManagedAddons "
            "encryptionConfig- kubernetesNetworkConfig.ipFamily kubernetesNetworkConfig.serviceIpv4Cidr name "
            "outpostConfig roleArn"
        ),
        outputs={
            "arn": arn("eks", "cluster/{name}"),
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
        places={
            "enabledClusterLogTypes": "logging.clusterLogging[0].types",
            "vpcConfig": "resourcesVpcConfig",
        },
        defaults={"bootstrapSelfManagedAddons": True},
        named="name",
        renewed={"platformVersion": ("version",)},
        guard="deletionProtection",
    ),
    "aws:eks/nodeGroup:NodeGroup": Row(
        "eks.CreateNodegroup",
        id="{inputs[clusterName]}:{name}",
        replaces=words(
            "amiType capacityType clusterName diskSize instanceTypes launchTemplate.id launchTemplate.name "
            "nodeGroupName nodeGroupNamePrefix nodeRoleArn remoteAccess subnetIds"
        ),
        outputs={
            "arn": arn("eks", "nodegroup/{inputs[clusterName]}/{name}/{hex}"),
            "status": "ACTIVE",
            "resources": [{"autoscalingGroups": [{"name": "eks-{name}-{hex}"}]}],
            "version": "1.34",
            "releaseVersion": "{hex}",
            "capacityType": "ON_DEMAND",
        },
        places={"nodeRoleArn": "nodeRole", "subnetIds": "subnets"},
        named="nodeGroupName",
        renewed={"releaseVersion": ("version", "launchTemplate")},
    ),
    "aws:eks/addon:Addon": Row(
        "eks.CreateAddon",
        id="{inputs[clusterName]}:{inputs[addonName]}",
        replaces=words("addonName clusterName namespaceConfig"),
        outputs={
            "arn": arn("eks", "addon/{inputs[clusterName]}/{inputs[addonName]}/{hex}"),
            "createdAt": _MOMENT,
            "modifiedAt": _MOMENT,
            "addonVersion": "v1.0.0-eksbuild.1",
        },
        places={
            "resolveConflictsOnCreate": "resolveConflicts",
            "resolveConflictsOnUpdate": "UpdateAddon:resolveConflicts",
        },
        documents=("configurationValues",),
        renewed={"modifiedAt": ("addonVersion", "configurationValues", "podIdentityAssociations")},
    ),
    "aws:eks/accessEntry:AccessEntry": Row(
        "eks.CreateAccessEntry",
        id="{inputs[clusterName]}:{inputs[principalArn]}",
        replaces=words("clusterName principalArn type"),
        outputs={
            "accessEntryArn": arn("eks", "access-entry/{inputs[clusterName]}/{hex}"),
            "createdAt": _MOMENT,
            "modifiedAt": _MOMENT,
            "userName": "{inputs[principalArn]}",
        },
        defaults={"type": "STANDARD"},
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": Row(
        "eks.AssociateAccessPolicy",
        id="{inputs[clusterName]}#{inputs[principalArn]}#{inputs[policyArn]}",
        replaces=words("accessScope clusterName policyArn principalArn"),
        outputs={"associatedAt": _MOMENT, "modifiedAt": _MOMENT},
        tagged=False,
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": Row(
        "eks.CreatePodIdentityAssociation",
        id="a-{hex}",
        replaces=words("clusterName namespace serviceAccount"),
        outputs={
            "associationArn": arn("eks", "podidentityassociation/{inputs[clusterName]}/{id}"),
            "associationId": "{id}",
        },
        documents=("policy",),
    ),
}
