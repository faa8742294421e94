"""AWS itself, asked directly: what a stack's account can give, and what a stack has left there."""
