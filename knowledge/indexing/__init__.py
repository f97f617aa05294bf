"""From bytes to pieces: parse, chunk, find code examples (pure functions), and the loading and indexing round them."""
