"""Magnum's tables on sqlite, from its own models: its migrations alter constraints, which sqlite refuses."""

from __future__ import annotations

import sys


def main() -> None:
    import magnum.conf
    from magnum.db.sqlalchemy import migration, models
    from oslo_db.sqlalchemy import enginefacade

    magnum.conf.CONF(sys.argv[1:], project="magnum")
    models.Base.metadata.create_all(enginefacade.writer.get_engine())
    migration.stamp("head")
