"""Our programs that run beside the embedded control plane. Standard library and yaml alone."""
