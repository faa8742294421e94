// The Kubernetes provider of Pulumi, built from its module. The schema serves code generation only.
package main

import (
	"fmt"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version"
)

func main() {
	schema := fmt.Sprintf(`{"name": "kubernetes", "version": %q}`, version.Version)
	provider.Serve("kubernetes", version.Version, []byte(schema), []byte("{}"))
}
