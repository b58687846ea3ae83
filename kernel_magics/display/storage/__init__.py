"""Records that were shown are kept in a file of the session; in memory each takes ten to twenty times as much."""
