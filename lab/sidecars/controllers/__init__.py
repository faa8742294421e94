"""Controllers of the embedded control plane that are real programs beside it: their pods run no code here.

Each is installed by its own chart. This process is the kubelet of its one Deployment: it mounts ConfigMaps
and Secrets, runs the program with the arguments of the container and a token of the ServiceAccount, probes
it, and writes the pods' readiness. It is kube-proxy as well, see :mod:`egress`. One process runs where the
chart may ask for several, of which one leads. Standard library and yaml alone.
"""
