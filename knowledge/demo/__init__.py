"""Texts of the demo project."""
