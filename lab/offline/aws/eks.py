"""``aws:eks``. A cluster has the address of the embedded control plane, if the run has one."""

from __future__ import annotations

from collections.abc import Mapping

from lab.offline.aws.row import Row, arn, words

_MOMENT = "2026-01-01T00:00:00Z"  # made up, and constant so that outputs do not change

ROWS: Mapping[str, Row] = {
    "aws:eks/cluster:Cluster": Row(
        "eks.CreateCluster",
        words(
            "accessConfig bootstrapSelfManagedAddons computeConfig controlPlaneScalingConfig "
            "defaultAddonsToRemoves deletionProtection enabledClusterLogTypes encryptionConfig "
            "forceUpdateVersion kubeApiServerConfig kubeControllerManagerConfig kubeSchedulerConfig "
            "kubernetesNetworkConfig name outpostConfig region remoteNetworkConfig roleArn storageConfig "
            "tags upgradePolicy version vpcConfig zonalShiftConfig"
        ),
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
            "defaultAddonsToRemoves": None,
            "forceUpdateVersion": None,
        },
        defaults={"bootstrapSelfManagedAddons": True},
        named="name",
        renewed={"platformVersion": ("version",)},
        guard="deletionProtection",
    ),
    "aws:eks/nodeGroup:NodeGroup": Row(
        "eks.CreateNodegroup",
        words(
            "amiType capacityType clusterName diskSize forceUpdateVersion instanceTypes labels "
            "launchTemplate nodeGroupName nodeGroupNamePrefix nodeRepairConfig nodeRoleArn region "
            "releaseVersion remoteAccess scalingConfig subnetIds tags taints updateConfig version "
            "warmPoolConfig"
        ),
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
        places={
            "nodeRoleArn": "nodeRole",
            "subnetIds": "subnets",
            "nodeGroupNamePrefix": None,
            "forceUpdateVersion": None,
            "remoteAccess.sourceSecurityGroupIds": "sourceSecurityGroups",
        },
        named="nodeGroupName",
        renewed={"releaseVersion": ("version", "launchTemplate")},
    ),
    "aws:eks/addon:Addon": Row(
        "eks.CreateAddon",
        words(
            "addonName addonVersion clusterName configurationValues namespaceConfig podIdentityAssociations "
            "preserve region resolveConflictsOnCreate resolveConflictsOnUpdate serviceAccountRoleArn tags"
        ),
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
            "preserve": "DeleteAddon:preserve",
        },
        documents=("configurationValues",),
        renewed={"modifiedAt": ("addonVersion", "configurationValues", "podIdentityAssociations")},
    ),
    "aws:eks/accessEntry:AccessEntry": Row(
        "eks.CreateAccessEntry",
        words("clusterName kubernetesGroups principalArn region tags type userName"),
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
        words("accessScope clusterName policyArn principalArn region"),
        id="{inputs[clusterName]}#{inputs[principalArn]}#{inputs[policyArn]}",
        replaces=words("accessScope clusterName policyArn principalArn"),
        outputs={"associatedAt": _MOMENT, "modifiedAt": _MOMENT},
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": Row(
        "eks.CreatePodIdentityAssociation",
        words(
            "clusterName disableSessionTags namespace policy region roleArn serviceAccount tags targetRoleArn"
        ),
        id="a-{hex}",
        replaces=words("clusterName namespace serviceAccount"),
        outputs={
            "associationArn": arn("eks", "podidentityassociation/{inputs[clusterName]}/{id}"),
            "associationId": "{id}",
        },
        documents=("policy",),
    ),
}
