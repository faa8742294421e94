"""``python -m lab.sidecars.controllers --kubeconfig PATH --pki DIR --home DIR --logs DIR``."""

from __future__ import annotations

import sys

from lab.sidecars.controllers.egress import Egress, socket_name
from lab.sidecars.controllers.keeper import ControllersKeeper, Settings
from lab.sidecars.controllers.release import Cluster
from lab.sidecars.shared.child import argument_parser, stop_event
from lab.sidecars.shared.server import Server


def main() -> int:
    parser = argument_parser("lab.sidecars.controllers", __doc__)
    parser.add_argument(
        "--named", action="append", default=[], help="HOST:PORT of a Service=loopback port that serves it"
    )
    args = parser.parse_args()
    stop = stop_event()
    egress = Egress(socket_name(args.home))
    service_ports = {name: int(port) for name, _, port in (pair.partition("=") for pair in args.named)}
    settings = Settings(args.home, args.logs, proxy=f"http://127.0.0.1:{egress.start(service_ports)}")
    ControllersKeeper(Cluster(Server(args.kubeconfig, args.pki)), settings, egress).run(stop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
