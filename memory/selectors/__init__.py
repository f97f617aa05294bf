"""Reading memories: by id, by filter, by question."""
