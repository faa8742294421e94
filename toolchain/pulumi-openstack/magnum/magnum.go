// Package magnum serves Magnum's types of the OpenStack provider to the engine.
package magnum

import (
	"fmt"

	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	shim "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfshim/sdk-v2"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
)

// The provider's names of what is served.
const (
	Cluster   = "openstack_containerinfra_cluster_v1"
	Template  = "openstack_containerinfra_clustertemplate_v1"
	NodeGroup = "openstack_containerinfra_nodegroup_v1"
)

// version is the SDK's; the linker sets it, for the engine warns of a plugin that is older.
var version = "5.0.0"

// Resources and Functions have the tokens of the official provider (provider/resources.go).
var (
	Resources = map[string]string{
		Cluster:   "cluster:Cluster",
		Template:  "clusterTemplate:ClusterTemplate",
		NodeGroup: "nodeGroup:NodeGroup",
	}
	Functions = map[string]string{
		Cluster:   "getCluster:getCluster",
		Template:  "getClusterTemplate:getClusterTemplate",
		NodeGroup: "getNodeGroup:getNodeGroup",
	}
)

// Serve runs until the engine ends it.
func Serve(provider *schema.Provider) {
	info := tfbridge.ProviderInfo{
		P:                       shim.NewProvider(provider),
		Name:                    "openstack",
		Version:                 version,
		TFProviderModuleVersion: "v3",
		MetadataInfo:            tfbridge.NewProviderMetadata([]byte("{}")),
		Config:                  map[string]*tfbridge.SchemaInfo{},
		Resources:               map[string]*tfbridge.ResourceInfo{},
		DataSources:             map[string]*tfbridge.DataSourceInfo{},
	}
	for name, variable := range map[string]string{
		"allow_reauth":  "OS_ALLOW_REAUTH",
		"cloud":         "OS_CLOUD",
		"delayed_auth":  "OS_DELAYED_AUTH",
		"endpoint_type": "OS_ENDPOINT_TYPE",
		"insecure":      "OS_INSECURE",
		"region":        "OS_REGION_NAME",
		"swauth":        "OS_SWAUTH",
	} {
		info.Config[name] = &tfbridge.SchemaInfo{Default: &tfbridge.DefaultInfo{EnvVars: []string{variable}}}
	}
	for name, token := range Resources {
		info.Resources[name] = &tfbridge.ResourceInfo{Tok: tokens.Type("openstack:containerinfra/" + token)}
	}
	for name, token := range Functions {
		member := tokens.ModuleMember("openstack:containerinfra/" + token)
		info.DataSources[name] = &tfbridge.DataSourceInfo{Tok: member}
	}
	info.SetAutonaming(255, "-")
	tfbridge.Main("openstack", version, info, fmt.Appendf(nil, `{"name": "openstack", "version": %q}`, version))
}
