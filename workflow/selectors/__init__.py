"""What can be read of the workflow: querysets and frozen views, in a constant number of queries each."""
