"""Stand-ins of offline runs for published charts and for cloud nodes."""
