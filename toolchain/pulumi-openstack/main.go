// The OpenStack provider of Pulumi, built from the modules that it wraps, with the types of Magnum alone.
package main

import (
	"gpuform.io/toolchain/pulumi-openstack/magnum"

	"github.com/terraform-provider-openstack/terraform-provider-openstack/v3/openstack"
)

func main() {
	magnum.Serve(openstack.Provider())
}
