"""Changing memories. Each change is one transaction: the row, its place in the index, and the notice to listeners."""
