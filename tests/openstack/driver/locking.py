"""Autocommitted statements on sqlite, since Magnum's API and its conductor use one file.

oslo.db begins a transaction as a reader; if two readers then want to write, one gets "database is
locked" at once, whatever its timeout. Without a transaction each statement waits for its turn. This gives
up atomicity, which Magnum needs only within one call of its database API.
"""

from __future__ import annotations

from sqlalchemy import event
from sqlalchemy.engine import Engine


@event.listens_for(Engine, "begin")
def _not_begun(connection):
    """Called before oslo.db's own listener, which then considers it begun (oslo_db/sqlalchemy/engines.py)."""
    connection.info["in_transaction"] = True
