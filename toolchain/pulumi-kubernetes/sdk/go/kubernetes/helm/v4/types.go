// Package v4 has the inputs of the component Chart, which the provider's code names.
package v4

import "github.com/pulumi/pulumi/sdk/v3/go/pulumi"

// RepositoryOpts is where a chart comes from.
type RepositoryOpts struct {
	CaFile   pulumi.AssetOrArchive `pulumi:"caFile"`
	CertFile pulumi.AssetOrArchive `pulumi:"certFile"`
	KeyFile  pulumi.AssetOrArchive `pulumi:"keyFile"`
	Password *string               `pulumi:"password"`
	Repo     *string               `pulumi:"repo"`
	Username *string               `pulumi:"username"`
}

// PostRenderer is a command that changes what a chart renders.
type PostRenderer struct {
	Args    []string `pulumi:"args"`
	Command string   `pulumi:"command"`
}

// RepositoryOptsInput and PostRendererInput are never made here.
type (
	RepositoryOptsInput interface{ pulumi.Input }
	PostRendererInput   interface{ pulumi.Input }
)
