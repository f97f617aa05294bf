"""What the knowledge room does: sources and their ingestion, search, code examples."""
