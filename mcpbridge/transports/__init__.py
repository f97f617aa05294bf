"""Thin transports over the one pipeline: they carry messages and know who sent them, nothing else."""
