"""The agile tools' objects, and the two places they are kept: DevFlow's own tables, or a real Taiga."""
