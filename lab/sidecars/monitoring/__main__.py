"""``python -m lab.sidecars.monitoring --kubeconfig PATH --pki DIR --home DIR --logs DIR ...``."""

from __future__ import annotations

import sys

from lab.sidecars.monitoring.cluster import Cluster
from lab.sidecars.monitoring.keeper import MonitoringKeeper, Settings
from lab.sidecars.monitoring.targets import Ports
from lab.sidecars.shared.child import argument_parser, stop_event


def main() -> int:
    parser = argument_parser("lab.sidecars.monitoring", __doc__)
    for name in ("prometheus", "state-metrics", "telemetry", "exporters"):
        parser.add_argument(f"--{name}-port", type=int, required=True, help="on 127.0.0.1")
    args = parser.parse_args()
    ports = Ports(args.prometheus_port, args.state_metrics_port, args.telemetry_port, args.exporters_port)
    settings = Settings(args.home, args.logs, ports)
    MonitoringKeeper(Cluster(args.kubeconfig, args.pki), settings).run(stop_event())
    return 0


if __name__ == "__main__":
    sys.exit(main())
