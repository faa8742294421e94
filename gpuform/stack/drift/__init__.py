"""Changes made by hand: what the engine's refresh finds, and what the live nodes show."""
