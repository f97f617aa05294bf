"""Reads of the knowledge room. Every one is scoped to a project."""
