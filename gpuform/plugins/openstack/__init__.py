"""The stand-in of pulumi-resource-openstack: what of it our programs use, which is Magnum."""
