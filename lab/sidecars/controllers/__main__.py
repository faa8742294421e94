"""``python -m lab.sidecars.controllers --kubeconfig PATH --pki DIR --home DIR --logs DIR``."""

from __future__ import annotations

import sys

from lab.sidecars.controllers.egress import Egress, socket_name
from lab.sidecars.controllers.keeper import Keeper, Settings
from lab.sidecars.controllers.release import Cluster
from lab.sidecars.shared.child import arguments, stop_event
from lab.sidecars.shared.server import Server


def main() -> int:
    parser = arguments("lab.sidecars.controllers", __doc__)
    parser.add_argument(
        "--named", action="append", default=[], help="HOST:PORT of a Service=loopback port that serves it"
    )
    args = parser.parse_args()
    over = stop_event()
    egress = Egress(socket_name(args.home))
    named = {name: int(port) for name, _, port in (one.partition("=") for one in args.named)}
    settings = Settings(args.home, args.logs, proxy=f"http://127.0.0.1:{egress.start(named)}")
    Keeper(Cluster(Server(args.kubeconfig, args.pki)), settings, egress).run(over)
    return 0


if __name__ == "__main__":
    sys.exit(main())
