// Package v2 refuses the components of YAML, Kustomize and Helm charts: they need the whole Go SDK.
package v2

import (
	"errors"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// RegisterResource is called for each object of such a component.
func RegisterResource(
	_ *pulumi.Context, _, _, _ string, _ pulumi.Input, _ ...pulumi.ResourceOption,
) (pulumi.CustomResource, error) {
	return nil, errors.New("components of YAML, Kustomize and charts need the official plugin: pulumi plugin install")
}
