"""SQLite with first-come-first-served write transactions inside one process."""
