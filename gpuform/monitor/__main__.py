"""``python -m gpuform.monitor --kubeconfig PATH --pki DIR --home DIR --logs DIR ...``: run until SIGTERM."""

from __future__ import annotations

import sys

from gpuform.kept.told import arguments, told_to_stop
from gpuform.monitor.cluster import Cluster
from gpuform.monitor.keeper import Keeper, Settings
from gpuform.monitor.targets import Ports


def main() -> int:
    parser = arguments("gpuform.monitor", __doc__)
    for name in ("prometheus", "state-metrics", "telemetry", "exporters"):
        parser.add_argument(f"--{name}-port", type=int, required=True, help="on 127.0.0.1")
    args = parser.parse_args()
    ports = Ports(args.prometheus_port, args.state_metrics_port, args.telemetry_port, args.exporters_port)
    settings = Settings(args.home, args.logs, ports)
    Keeper(Cluster(args.kubeconfig, args.pki), settings).run(told_to_stop())
    return 0


if __name__ == "__main__":
    sys.exit(main())
