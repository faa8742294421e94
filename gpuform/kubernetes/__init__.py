"""An asynchronous Kubernetes client: kubeconfigs, credentials, requests, and what pods wait for."""
