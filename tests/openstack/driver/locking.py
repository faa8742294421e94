"""Statements that each stand alone on sqlite, for Magnum's API and both processes of its conductor use one
file.

oslo.db begins a transaction as a reader, and of two readers that both come to write one gets "database is
locked" at once, whatever it may wait. Without a transaction each statement waits for its turn. What is lost
is that several go together or not at all, which Magnum asks for within one call of its database API only.
"""

from __future__ import annotations

from sqlalchemy import event
from sqlalchemy.engine import Engine


@event.listens_for(Engine, "begin")
def _not_begun(connection):
    """Called before oslo.db's own listener, which then takes it as begun (oslo_db/sqlalchemy/engines.py)."""
    connection.info["in_transaction"] = True
