"""An asynchronous Kubernetes client: kubeconfigs, credentials, requests, and why pods are not ready."""
