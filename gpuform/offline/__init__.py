"""What offline runs have in place of what lies on the internet or at a cloud: charts, and nodes."""
