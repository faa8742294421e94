"""A stand-in of pulumi-resource-aws for runs without an account: it validates, plans, keeps state."""
