// The OpenStack provider for runs without a cloud: it checks and plans as the real one, and asks no service.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"regexp"

	"gpuform.io/toolchain/pulumi-openstack/magnum"

	"github.com/hashicorp/terraform-plugin-sdk/v2/diag"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	"github.com/terraform-provider-openstack/terraform-provider-openstack/v3/openstack"
	"gopkg.in/yaml.v2"
)

const (
	notice = "gpuform: offline stand-in for pulumi-resource-openstack: nothing is created at OpenStack"
	charts = "gpuform: offline: charts that others publish are stand-ins made on this machine"
	moment = "2026-01-01T00:00:00Z"
	// OpenStack's own default, where the environment names no region.
	usual = "RegionOne"
	// Names the kubeconfig of the embedded control plane, for which the cluster stands.
	variable = "GPUFORM_OFFLINE_KUBECONFIG"
)

var release = regexp.MustCompile(`\d+\.\d+\.\d+`)

// main replaces what asks a cloud. Schemas, defaults, validation and ForceNew stay the provider's.
func main() {
	provider := openstack.Provider()
	provider.ConfigureContextFunc = func(ctx context.Context, d *schema.ResourceData) (any, diag.Diagnostics) {
		tfbridge.GetLogger(ctx).Info(notice)
		tfbridge.GetLogger(ctx).Info(charts)
		if given := d.Get("region").(string); given != "" {
			return given, nil
		}
		return usual, nil
	}
	for name := range magnum.Resources {
		resource := provider.ResourcesMap[name]
		resource.CreateContext = func(_ context.Context, d *schema.ResourceData, meta any) diag.Diagnostics {
			return diag.FromErr(create(name, resource, d, meta.(string)))
		}
		resource.ReadContext = schema.NoopContext
		resource.UpdateContext = schema.NoopContext
		resource.DeleteContext = schema.NoopContext
	}
	for name := range magnum.Functions {
		provider.DataSourcesMap[name].ReadContext = func(
			_ context.Context, d *schema.ResourceData, meta any,
		) diag.Diagnostics {
			return diag.FromErr(find(name, d, meta.(string)))
		}
	}
	magnum.Serve(provider)
}

// create sets what the stack reads of Magnum's answer. The same inputs give the same id.
func create(name string, resource *schema.Resource, d *schema.ResourceData, region string) error {
	given := map[string]any{}
	made := map[string]any{}
	for key, field := range resource.SchemaMap() {
		if field.Required || field.Optional {
			given[key] = d.Get(key)
		}
		// An empty map or list is unknown to the provider, which would replace the resource for it.
		if _, known := d.GetOk(key); field.Computed && !known {
			switch field.Type {
			case schema.TypeMap:
				made[key] = map[string]string{"offline": "true"}
			case schema.TypeList:
				made[key] = []string{"198.51.100.2"}
			}
		}
	}
	id := uuid(name, given)
	made["created_at"], made["project_id"] = moment, uuid("project")
	if given["region"] == "" {
		made["region"] = region
	}
	switch name {
	case magnum.NodeGroup:
		id = fmt.Sprintf("%s/%s", given["cluster_id"], id)
	case magnum.Cluster:
		kubeconfig, err := kubeconfig(given["name"].(string))
		if err != nil {
			return err
		}
		made["kubeconfig"], made["api_address"] = kubeconfig, kubeconfig["host"]
	}
	d.SetId(id)
	return set(d, made)
}

// find answers a lookup: whatever is named is there, and a template has the release of Kubernetes in its name.
func find(name string, d *schema.ResourceData, region string) error {
	d.SetId(uuid(name, d.Get("name")))
	found := map[string]any{}
	if d.Get("region") == "" {
		found["region"] = region
	}
	if version := release.FindString(d.Get("name").(string)); name == magnum.Template && version != "" {
		found["labels"] = map[string]string{"kube_tag": "v" + version}
	}
	return set(d, found)
}

func set(d *schema.ResourceData, values map[string]any) error {
	for key, value := range values {
		if err := d.Set(key, value); err != nil {
			return err
		}
	}
	return nil
}

func uuid(words ...any) string {
	text, err := json.Marshal(words)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// document is what is read of a kubeconfig.
type document struct {
	Clusters []struct {
		Cluster map[string]string
	}
	Users []struct {
		User map[string]string
	}
}

// kubeconfig gives the parts that the provider gives: of the embedded control plane, or, where the run has
// none, of an address for documentation (RFC 5737), at which no server answers.
func kubeconfig(name string) (map[string]string, error) {
	nothing := base64.StdEncoding.EncodeToString([]byte("no certificate: offline\n"))
	cluster := map[string]string{"server": "https://198.51.100.1:6443", "certificate-authority-data": nothing}
	user := map[string]string{"client-certificate-data": nothing, "client-key-data": nothing}
	file := os.Getenv(variable)
	if content, err := os.ReadFile(file); err == nil {
		var found document
		err := yaml.Unmarshal(content, &found)
		if err != nil || len(found.Clusters) == 0 || len(found.Users) == 0 {
			return nil, fmt.Errorf("%s: %s is not the kubeconfig of an embedded control plane (%v)", variable, file, err)
		}
		cluster, user = found.Clusters[0].Cluster, found.Users[0].User
	}
	own := name + "-admin"
	raw, err := yaml.Marshal(map[string]any{
		"apiVersion":      "v1",
		"kind":            "Config",
		"clusters":        []any{map[string]any{"name": name, "cluster": cluster}},
		"contexts":        []any{map[string]any{"name": name, "context": map[string]string{"cluster": name, "user": own}}},
		"current-context": name,
		"users":           []any{map[string]any{"name": own, "user": user}},
	})
	if err != nil {
		return nil, err
	}
	parts := map[string]string{"raw_config": string(raw), "host": cluster["server"]}
	for part, coded := range map[string]string{
		"cluster_ca_certificate": cluster["certificate-authority-data"],
		"client_certificate":     user["client-certificate-data"],
		"client_key":             user["client-key-data"],
	} {
		plain, err := base64.StdEncoding.DecodeString(coded)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", variable, file, err)
		}
		parts[part] = string(plain)
	}
	return parts, nil
}
