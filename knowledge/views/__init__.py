"""Pages of the knowledge room."""
