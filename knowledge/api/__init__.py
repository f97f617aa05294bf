"""REST of the knowledge room under /api/v1/: viewsets that read through selectors and write through services only."""
