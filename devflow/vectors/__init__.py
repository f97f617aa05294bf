"""Vectors: embedders, stores, and the outbox that keeps a store equal to the rows it was made from."""
