"""A stand-in of pulumi-resource-openstack for runs without a cloud: it checks, plans, remembers."""
