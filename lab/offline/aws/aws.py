"""``aws`` of offline runs: ``aws eks get-token``, which the kubeconfig of an EKS cluster runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence

from lab.offline.aws.cluster import VARIABLE, eks_stand_in

_VERSION = "client.authentication.k8s.io/v1"


def answer(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    """The ExecCredential with the client certificate of the cluster that stands in for EKS.

    Raises ValueError for any other command, and if the run has no cluster.
    """
    if list(arguments[:2]) != ["eks", "get-token"] or "--cluster-name" not in arguments:
        raise ValueError(
            f"aws {' '.join(arguments[:2])}: offline runs answer `aws eks get-token --cluster-name NAME` only"
        )
    cluster = eks_stand_in(environ)
    if cluster is None:
        raise ValueError(
            f"there is no cluster in this offline run; start one (gpuform local start) or set {VARIABLE}"
        )
    api_version = json.loads(environ.get("KUBERNETES_EXEC_INFO") or "{}").get("apiVersion", _VERSION)
    status = {"clientCertificateData": cluster.client_certificate, "clientKeyData": cluster.client_key}
    return json.dumps({"apiVersion": api_version, "kind": "ExecCredential", "status": status})


def main() -> None:
    try:
        print(answer(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"gpuform offline: {error}")


if __name__ == "__main__":
    main()
